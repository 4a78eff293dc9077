"""The scripts of training/benchmarks at toy size, and the committed pages against the files that they were made of."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from training.benchmarks import billion_pairs, gpu, machine_page
from training.benchmarks.common import Results, Timing, options, spread

CARDS = Path(__file__).parents[2] / "model_cards"
MACHINES = [path.parent for path in sorted((CARDS / "benchmark").glob("*/machine.json"))]


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|--")]


@pytest.mark.parametrize("folder", MACHINES, ids=lambda folder: folder.name)
def test_a_committed_page_shows_what_was_measured(folder):
    assert set(rows(machine_page.page(folder))) <= set(rows((folder / "README.md").read_text(encoding="utf-8")))


def test_the_index_shows_all_machines():
    page = (CARDS / "benchmark" / "README.md").read_text(encoding="utf-8")
    assert machine_page.index(CARDS / "benchmark") == page


def test_a_billion_pairs_are_the_rates_times_the_pairs():
    rates = json.loads((CARDS / "billion-pairs" / "rates.json").read_text(encoding="utf-8"))
    page = billion_pairs.page(rates, 10**9, 8, 32)
    assert page == (CARDS / "billion-pairs" / "README.md").read_text(encoding="utf-8")
    assert billion_pairs.gather_rates(MACHINES[0]).keys() == rates.keys()
    cleaning = next(row for row in billion_pairs.rows(rates, 36 * 10**8, 10, 4) if row[0] == "cleaning")
    assert cleaning[-3:] == ["4.25", "all machines", "0.11"]  # 4.25 CPU seconds a million


@pytest.mark.slow
@pytest.mark.parametrize("name", machine_page.PARTS)
def test_a_script_measures_and_its_page_is_rendered(name, tmp_path):
    script = machine_page.PARTS[name]
    script.main(["--toy", "--rounds", "1", "--output", str(tmp_path)])
    before = (tmp_path / f"{name}.json").read_bytes()
    script.main(["--toy", "--rounds", "1", "--output", str(tmp_path)])
    assert (tmp_path / f"{name}.json").read_bytes() == before  # nothing was left to measure
    machine_page.main(["--output", str(tmp_path)])
    assert script.section(Results.read(tmp_path / f"{name}.json")).text in (tmp_path / "README.md").read_text()


@pytest.mark.slow
def test_generation_speed_draws_what_it_measured(tmp_path):
    import_module("training.benchmarks.generation_speed").main(
        ["--toy", "--rounds", "1", "--output", f"{tmp_path}/out"]
    )
    assert len(json.loads((tmp_path / "out.json").read_text())["rows"]) == 4 and (tmp_path / "out.png").stat().st_size


def test_results_are_kept_at_once_and_have_one_setting(tmp_path):
    args = options("").parse_args(["--output", str(tmp_path)])
    results = Results.open(args, "part", {"size": 1})
    results.measure("a, round 1", lambda: 3)
    again = Results.open(args, "part", {"size": 1})
    again.measure("a, round 1", pytest.fail)
    again.measure("a, round 2", lambda: 4)
    assert Results.read(tmp_path / "part.json").rounds() == {"a": [3, 4]}
    with pytest.raises(ValueError, match=r"part\.json"):
        Results.open(args, "part", {"size": 2})


def test_ratios_are_of_the_same_round():
    assert spread([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == "2.00 (1.00–3.00)" and spread([2.0], [4.0]) == "0.50"


class TimedTrainer(Timing, AdminTrainer):
    seen: list

    def training_step(self, model, inputs, *rest):
        self.seen.append(inputs)
        return super().training_step(model, inputs, *rest)


@pytest.mark.parametrize("warm_up", [0, 3])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_stopwatch_counts_what_is_trained_after_the_warm_up(tiny_config, tmp_path, warm_up, accumulation):
    args = AdminTrainingArguments(
        str(tmp_path), max_tokens=40, max_steps=4, use_cpu=True, save_strategy="no", disable_tqdm=True,
        gradient_accumulation_steps=accumulation,
    )  # fmt: skip
    trainer = TimedTrainer(AdminForConditionalGeneration(tiny_config()), args, train_dataset=random_ids(24))
    trainer.seen = []
    watch = trainer.time_training(warm_up)
    measured = trainer.seen[warm_up * accumulation :]
    assert len(trainer.seen) == 4 * accumulation
    assert watch.shapes == [(*inputs["input_ids"].shape, inputs["labels"].shape[1]) for inputs in measured]
    assert watch.tokens == sum(int((inputs["labels"] != -100).sum()) for inputs in measured)
    assert watch.seconds > 0


def test_every_step_of_the_gpu_has_its_function_and_fields():
    steps = [gpu.Step.of(name) for name in gpu.NAMES]
    assert len(steps) == len({step.name for step in steps})
    master = gpu.Step.of("updates-60-12-16k-compiled-master")
    assert master.function is gpu.measure_updates
    assert master.fields["training.compile_layers"] and master.fields["model.encoder_layers"] == 60
    grid = gpu.Setup(Path("unused")).grid()
    assert {name.removeprefix("train-") for name in gpu.NAMES if name.startswith("train-")} <= set(grid.systems)


def test_a_step_that_raises_leaves_its_error_and_the_next_one_runs(tmp_path):
    def fail(setup, fields):
        raise torch.cuda.OutOfMemoryError("too large")

    setup = gpu.Setup(tmp_path)
    (tmp_path / "steps").mkdir()
    steps = [
        gpu.Step(name, function, {}, 1, "") for name, function in (("a", fail), ("b", lambda setup, fields: {"x": 1.0}))
    ]
    gpu.run_steps(setup, steps)
    results = gpu.read_results(setup)
    assert "too large" in results["a"]["error"] and results["b"]["result"] == {"x": 1.0}
    assert "too large" in gpu.page(results, toy=True)


@pytest.mark.slow
def test_the_gpu_steps_go_on_in_the_next_call(tmp_path):
    """Each kind of step at toy size, in calls too short for all."""
    only = [
        "data",
        "updates-6-6-4k",
        "predict-6-6-4k",
        "wmt-128",
        "profile-60-12-4k",
        "updates-60-12-16k-compiled-master",
    ]
    only += [
        "attention-4k",
        "train-admin-18-18",
        "evaluation-60-12-4k",
        "search-6-6",
        "predictwmt-128",
        "loss-4k",
        "tests",
    ]
    command = ["--toy", "--output", str(tmp_path), "--only", *only]
    calls = 0
    while gpu.main([*command, "--minutes", "2" if calls else "0.2"]):
        calls += 1
        assert calls < 12
    failed = {name: one["error"] for name, one in gpu.read_results(gpu.Setup(tmp_path)).items() if "error" in one}
    assert not failed and calls
