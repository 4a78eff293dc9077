"""Grids: their files, running them, their tables."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from math import log
from pathlib import Path

import psutil
import pytest
import yaml
from datasets import Dataset, concatenate_datasets
from finished_run import toy_results
from toy import invoke, write_recipe

from admin_nmt import AdminConfig
from admin_nmt.data.arrow_cache import available_cores
from admin_nmt.experiments import grid_runner
from admin_nmt.experiments.grid_runner import run_all, wanted_runs
from admin_nmt.experiments.grids import Grid, load_grid
from admin_nmt.experiments.tables import line_of, outcome, write_tables
from admin_nmt.hub.run_folder import Results
from admin_nmt.metrics.unigram import target_counts, unigram_nll

TRAINING = Path(__file__).parents[2] / "training"
GRIDS = sorted((TRAINING / "grids").glob("*.yaml"))

# Stands in for Python, which gets -m admin_nmt train RECIPE and the fields.
TRAINER = """
import json, os, pathlib, signal, sys, time
arguments = dict(zip(sys.argv[5::2], sys.argv[6::2], strict=True))
folder = pathlib.Path(json.loads(arguments["--output_dir"]))
(folder / "threads").write_text(os.environ["OMP_NUM_THREADS"])
print("training", flush=True)
variant = json.loads(arguments["--model.variant"])
if variant == "pre_ln":
    sys.exit("error: no such file")
if variant == "deepnorm":
    def save_and_stop(*_):
        (folder / "saved").touch()
        sys.exit(143)

    signal.signal(signal.SIGTERM, save_and_stop)
    (folder / "started").touch()
    time.sleep(60)
seed = int(arguments["--training.seed"])
results = RESULTS
results["training"]["seed"] = seed
results["recipe"] |= {"output_dir": str(folder), "data": {"builtin": "phrasebook"}, "tokenizer": {}, "card": {}}
results["recipe"] |= {"model": {"variant": variant}, "training": {"learning_rate": 1e-5, "seed": seed}}
(folder / "results.json").write_text(json.dumps(results))
"""


def results(variant: str = "admin", bleu: float | None = 30.0, nll: float = 2.0, layers: int = 6) -> dict:
    """results.json of a run; without `bleu` one that diverged at update 7."""
    history = [{"step": step, "nll": nll + 5 / step} for step in (1, 2, 3)] + [{"step": 3, "eval_loss": nll}]
    run = toy_results(
        status="finished" if bleu is not None else "diverged",
        diverged=None if bleu is not None else {"update": 7, "reason": "training diverged"},
        versions={"torch": "2", "transformers": "5"},
        commit="abc",
        history=history,
    )
    run["model"] |= {"variant": variant, "encoder_layers": layers, "decoder_layers": 6, "config": {}}
    run["training"] |= {"device": "CPU", "updates": 3, "minutes": 1.5}
    if bleu is None:
        return {name: value for name, value in run.items() if name not in ("chosen", "export", "test", "search")}
    run["chosen"]["valid"] = {"last weights": {"eval_loss": nll, "eval_perplexity": 7.4}}
    run["test"] |= {"bleu": bleu, "bleu_signature": "nrefs:1|case:mixed", "chrf_signature": "nrefs:1|nc:6"}
    return run


@pytest.fixture
def recipe_file(tmp_path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text("output_dir: run\ndata: {builtin: phrasebook}\n")
    return path


@pytest.fixture
def grid(tmp_path, recipe_file) -> Grid:
    """Two systems with two seeds."""
    systems = {variant: {"model.variant": variant} for variant in ("post_ln", "admin")}
    overrides = {"training.learning_rate": 1e-5}
    values = {"title": "A test", "recipe": recipe_file, "output_dir": tmp_path / "grid"}
    return Grid(**values, systems=systems, seeds=[1, 2], overrides=overrides)


@pytest.fixture
def launch(tmp_path) -> list[str]:
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER.replace("RESULTS", repr(results())))
    return [sys.executable, str(script)]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def pending(grid: Grid) -> list:
    return [run for run in grid.runs() if run.results() is None]


def outcome_of(run) -> str:
    return outcome(run.results())


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_every_system_of_the_grids_is_a_recipe(path):
    grid = load_grid(path)
    assert f"admin-nmt experiment {path.stem} " in path.read_text()
    assert grid.output_dir == Path("runs/grids") / path.stem
    configurations = set()
    for system in grid.systems:
        recipe = next(run.recipe() for run in grid.runs() if run.system == system)
        model = AdminConfig(**recipe.model.configuration()).to_dict()
        text = recipe.as_dict()["data"]["train"]
        configurations.add(json.dumps([model, recipe.training.arguments(), text], sort_keys=True))
    assert len(configurations) == len(grid.systems)  # no two systems are the same


@pytest.fixture
def grid_file(tmp_path, recipe_file) -> Callable[[dict], Path]:
    """Writes a grid of one system with some fields changed."""

    def write(change: dict) -> Path:
        values = {"title": "t", "recipe": "recipe.yaml", "output_dir": "out", "seeds": [1], "systems": {"a": {}}}
        path = tmp_path / "grid.yaml"
        path.write_text(yaml.safe_dump(values | change, sort_keys=False))
        return path

    return write


def test_the_last_override_wins(grid_file, tmp_path):
    overrides = {"model.variant": "post_ln", "model.dropout": 0.2, "training.max_steps": 5}
    systems = {"a": {"model.dropout": 0.3, "training.max_steps": 6}}
    path = grid_file({"overrides": overrides, "systems": systems, "seeds": [3]})
    (run,) = load_grid(path, ["--training.max_steps", "7", "--output_dir", str(tmp_path / "x")]).runs()
    recipe = run.recipe()
    assert recipe.model.given() == {"variant": "post_ln", "dropout": 0.3}
    assert recipe.training.given() == {"max_steps": 7, "seed": 3}
    assert Path(recipe.output_dir) == run.folder == tmp_path / "x" / "a-seed3"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"systems": {"a": {"model.layers": 3}}}, r"system a.*model\.layers"),
        ({"systems": {"a": {"training.seed": 7}}}, "system a.*seed"),
        ({"systems": {"a": {"data.train": {"source": "x.tsv"}}}, "overrides": {"data.builtin": None}}, "tokenizer"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"systems": {"../../x": {}}}, "x"),
    ],
)
def test_a_wrong_grid_is_refused_by_name(grid_file, change, named):
    with pytest.raises(ValueError, match=rf"(?s)grid\.yaml.*{named}"):
        load_grid(grid_file(change))


def test_a_system_may_be_the_recipe_itself_and_has_no_seed_of_its_own(grid_file):
    path = grid_file({"overrides": None, "systems": {"a": None}})
    assert [run.name for run in load_grid(path).runs()] == ["a-seed1"]
    with pytest.raises(ValueError, match=r"--training\.seed"):
        load_grid(path, ["--training.seed", "5"])


def test_systems_may_differ_in_their_training_text(tmp_path):
    side = {"source": "x.en", "target": "x.de"}
    recipe = {"output_dir": "run", "data": {"train": side, "valid": side, "test": side}, "tokenizer": {"path": "final"}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    systems = {"own": {}, "deep": {"model.encoder_layers": 12}, "other": {"data.train": {"source": "y.tsv"}}}
    values = {"title": "t", "recipe": "recipe.yaml", "output_dir": "out", "seeds": [1, 2], "systems": systems}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    grid = load_grid(tmp_path / "grid.yaml")
    runs = list(grid.runs())
    assert [recipe.data.train.source for recipe in grid.texts(runs)] == ["x.en", "y.tsv"]
    assert [recipe.data.train.source for recipe in grid.texts(runs[2:3])] == ["x.en", "y.tsv"]
    assert [recipe.data.train.source for recipe in grid.texts(runs[:2])] == ["x.en"]
    everywhere = load_grid(tmp_path / "grid.yaml", ["--data.train", "{source: z.tsv}"])
    assert [recipe.data.train.source for recipe in everywhere.texts(everywhere.runs())] == ["z.tsv"]


def test_a_run_of_other_settings_is_not_counted(grid):
    run = next(grid.runs())
    run.folder.mkdir(parents=True)
    recipe = run.recipe().as_dict()
    recipe["model"]["omega_rule"] = "log_n"  # the default, which the system does not name
    made = results() | {"recipe": recipe}
    (run.folder / "results.json").write_text(json.dumps(made))
    assert run.results() == Results(**made)
    same = {"training.learning_rate": 1e-5}
    grid.overrides = same | {"training.logging_steps": 7, "card.note": "x"}
    assert run.results() == Results(**made)
    for name, new in (("training.max_steps", 9), ("training.adam_beta2", 0.9), ("evaluation.num_beams", 2)):
        grid.overrides = same | {name: new}
        with pytest.raises(ValueError, match=f"post_ln-seed1 .*{name}"):
            run.results()
    (run.folder / "results.json").write_text("")
    assert run.results() is None


def test_systems_that_differ_in_more_than_depth_are_lines_of_their_own():
    row = {"variant": "dlcl_pre_ln", "encoder_layers": 18, "decoder_layers": 6}
    systems = {"ones-18-6": "ones", "18-6": "dlcl_pre_ln", "a-18-6-b": "a-b", "x": "x"}
    assert {system: line_of(row | {"system": system}) for system in systems} == systems


def test_a_failed_run_does_not_stop_the_others_and_what_ended_is_left_alone(grid, launch, capsys, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    grid.systems = {"pre_ln": {"model.variant": "pre_ln"}} | grid.systems
    run_all(pending(grid), 2, launch, outcome_of)
    assert {run.system for run in pending(grid)} == {"pre_ln"}
    assert sorted(run.results().training.seed for run in grid.runs() if run.system != "pre_ln") == [1, 1, 2, 2]
    assert "pre_ln-seed1: failed (exit code 1): error: no such file" in capsys.readouterr().err
    folder = grid.output_dir / "pre_ln-seed1"
    assert (folder / "train.log").read_text().startswith("training\n")
    assert (folder / "threads").read_text() == str(max(1, available_cores() // 2))


def test_systems_and_seeds_are_chosen(grid):
    assert [run.name for run in wanted_runs(grid, ["admin"], [2, 3])] == ["admin-seed2", "admin-seed3"]
    assert grid.seeds == [1, 2, 3]
    with pytest.raises(ValueError, match="--system pre_ln"):
        wanted_runs(grid, ["pre_ln"], [])


def test_an_interrupt_stops_the_runs(grid, launch):
    grid.systems = {"deepnorm": {"model.variant": "deepnorm"}}

    def interrupt() -> None:
        folders = [run.folder for run in grid.runs()]
        while not all((folder / "started").exists() for folder in folders):
            stopped.wait(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    stopped = threading.Event()
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            run_all(pending(grid), 2, launch, outcome_of)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert all((run.folder / "saved").exists() for run in grid.runs())
    assert len(pending(grid)) == 2


def test_tables_show_spread_divergence_and_runs_that_are_stuck(grid):
    grid.seeds = [1, 2, 3]
    runs = [results("post_ln", None), results("admin", 30.0, 2.0, 18)]
    runs += [results("post_ln", 0.1, 6.0), results("admin", 32.0, 2.2, 18), results("post_ln", 0.2, 3.4)]
    runs[1]["distinct_translations"], runs[4]["distinct_translations"] = 0.9, 0.05
    for run, content in zip(grid.runs(), runs, strict=False):
        content["history"] = [
            row | {"target_tokens": 900.0, "target_tokens_per_second": 3.0} for row in content["history"]
        ]
        run.folder.mkdir(parents=True)
        (run.folder / "results.json").write_text(json.dumps(content | {"recipe": run.recipe().as_dict()}))
    (grid.output_dir / "unigram.json").write_text('{"valid_nll": 6.2}')
    table = write_tables(grid)
    post_ln, admin = table.splitlines()[2:]
    assert "| 2 of 3; 1 diverged at update 7; 1 stuck; 1 degenerate |" in post_ln
    assert "| 2 of 3 | admin | 18-6 | 0.0M | 2.10 ± 0.14 | 31.00 ± 1.41 |" in admin
    page = (grid.output_dir / "README.md").read_text()
    assert table in page
    assert "degenerate where there are at most 10% as many" in page
    assert "`nrefs:1|case:mixed`; `nrefs:1|nc:6`" in page
    assert "CPU, torch 2, transformers 5, trained in float32, commit abc" in page
    rows = [(row["system"], row["seed"], row["diverged_at"]) for row in read_csv(grid.output_dir / "runs.csv")]
    assert rows[:2] == [("post_ln", "1", "7"), ("admin", "1", "")]
    for name in ("curves.png", "curves-hours.png", "depth.png"):
        assert (grid.output_dir / name).stat().st_size > 10_000


def test_workers_in_sessions_of_their_own_are_stopped_too(monkeypatch):
    """As those of torchrun are."""
    monkeypatch.setattr(grid_runner, "PATIENCE", 0.1)
    worker = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(99)"
    agent = (
        "import signal, subprocess, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"subprocess.run([sys.executable, '-c', {worker!r}], start_new_session=True)"
    )
    process = psutil.Popen([sys.executable, "-c", agent], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"\n"
    (child,) = process.children(recursive=True)
    grid_runner.stop([process])
    gone, alive = psutil.wait_procs([child], timeout=5)
    assert gone == [child] and not alive and process.returncode


def test_tables_of_nothing(tmp_path):
    """By the name of a grid that comes with the package, of which nothing has run."""
    table = invoke("experiment", "multi30k-default-admin", "--tables", "--output_dir", tmp_path).stdout
    assert "0 of " in table and "![" not in (tmp_path / "README.md").read_text()


def test_unigram_nll():
    """Frequencies (1+1, 2+1, 0+1) / 6 of three tokens."""
    train, valid = (Dataset.from_dict({"labels": rows}) for rows in ([[0, 1], [], [1]], [[1, 2]]))
    train = concatenate_datasets([train, train]).select([0, 1, 5])
    nll = unigram_nll(target_counts(train, 3), target_counts(valid, 3))
    assert nll == pytest.approx(-(log(3 / 6) + log(1 / 6)) / 2)


@pytest.mark.slow
def test_a_grid_from_the_command_line(tmp_path):
    """Training itself: one system that learns and one that diverges; the second call finds nothing to do."""
    write_recipe(tmp_path, training={"logging_steps": 1})
    grid = {"title": "Test", "recipe": "recipe.yaml", "output_dir": str(tmp_path / "grid"), "seeds": [1]}
    grid["systems"] = {"fine": {"model.variant": "pre_ln"}, "wild": {"training.learning_rate": 1e30}}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    command = [sys.executable, "-m", "admin_nmt", "experiment", str(tmp_path / "grid.yaml"), "--jobs", "2"]
    first = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert first.returncode == 0, first.stderr[-3000:]
    assert "wild-seed1: diverged at update " in first.stderr
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.stdout.splitlines()[-4:] == first.stdout.splitlines()[-4:]
    assert "started" not in again.stderr
