"""`admin-nmt train` on a small corpus of plain files: in this process, launched on two, killed and resumed."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from safetensors.torch import load_file
from toy import Killed, write_recipe
from typer.testing import CliRunner, Result

from admin_nmt.cli.app import app
from admin_nmt.data.phrasebook import phrasebook
from admin_nmt.hub.run_folder import CURVE, FINAL, RECIPE, RESULTS, STANDARD, TRANSLATIONS
from admin_nmt.runs import finishing
from admin_nmt.runs.claim import claim_folder
from admin_nmt.runs.recipe import load_recipe
from admin_nmt.trainer.checkpoints import complete_checkpoints
from admin_nmt.weights.averaging import average_checkpoints

TRAINING = Path(__file__).parents[2] / "training"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def train(*arguments: object, code: int = 0) -> Result:
    """`admin-nmt train` in this process; a bug raises."""
    result = CliRunner().invoke(app, ["train", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.stderr[-3000:]
    return result


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory) -> Path:
    """A recipe of a 2-1 model for six updates, on files of 300 pairs."""
    return write_recipe(tmp_path_factory.mktemp("scripts"))


@pytest.fixture(scope="module")
def finished(recipe_file) -> tuple[Path, str]:
    """The folder of the finished run, and what it printed."""
    return recipe_file.parent / "run", train(recipe_file).stdout


def test_train_leaves_a_standard_model_and_results(finished):
    folder, printed = finished
    results = json.loads((folder / RESULTS).read_text())
    translations = (folder / TRANSLATIONS).read_text().splitlines()
    assert results["test_sentences"] == len(translations) == 20
    assert results["distinct_translations"] == len({*translations}) / 20
    decoding = results["decoding"]
    assert decoding["sentences_per_second"] > 0 and decoding["processes"] == 1
    card = (folder / STANDARD / "README.md").read_text()
    assert f"{decoding['sentences_per_second']:.0f} sentences a second" in card
    epoch = re.search(r"an epoch: (\d+) pairs .* in (\d+) updates of .*; 6 updates are ([\d.]+) epochs", printed)
    assert int(epoch[1]) == results["data"]["sizes"]["train"]
    assert float(epoch[3]) == pytest.approx(results["history"][-1]["epoch"], abs=0.06)
    assert json.loads((folder / STANDARD / "config.json").read_text())["model_type"] == "marian"
    assert (folder / CURVE).stat().st_size > 10_000
    assert "average of the last 2 checkpoints" in results["chosen"]["valid"]  # five were asked for, two were there
    for name in (FINAL, STANDARD):  # search by default as the test set was translated
        settings = json.loads((folder / name / "generation_config.json").read_text())
        assert (settings["num_beams"], settings["length_penalty"]) == (2, 0.7), name


def test_the_better_of_checkpoint_and_average_is_saved_also_without_a_test_set(tmp_path, monkeypatch):
    """By validation BLEU; the NLL says the opposite. A run that is shorter than a log interval has its speed."""
    scores = iter([{"eval_bleu": 5.0, "eval_loss": 4.0}, {"eval_bleu": 3.0, "eval_loss": 2.0}])
    monkeypatch.setattr(finishing, "evaluate", lambda trainer: next(scores))
    train(write_recipe(tmp_path), "--data.test", "null", "--training.logging_steps", 500)
    run = tmp_path / "run"
    results = json.loads((run / RESULTS).read_text())
    training, chosen = results["training"], results["chosen"]
    assert training["updates"] == 6 and training["target_tokens"] > 0 and training["tokens_per_second"] > 0
    assert (run / STANDARD / "README.md").exists()
    assert [scores["eval_bleu"] for scores in chosen["valid"].values()] == [5.0, 3.0]
    expected = load_file(run / chosen["kind"].removeprefix("best checkpoint ") / "model.safetensors")
    saved = load_file(run / FINAL / "model.safetensors")
    assert all(saved[name].equal(expected[name]) for name in saved)


@pytest.mark.parametrize(
    ("metric", "greater", "better", "worse"),
    [
        ("chrf", True, {"eval_bleu": 0.0, "eval_chrf": 30.0}, {"eval_bleu": 5.0, "eval_chrf": 20.0}),
        ("eval_loss", False, {"eval_bleu": 0.0, "eval_loss": 2.0}, {"eval_bleu": 5.0, "eval_loss": 3.0}),
        (None, None, {"eval_bleu": 30.0, "eval_loss": 9.0}, {"eval_bleu": 29.0, "eval_loss": 1.0}),
        (None, None, {"eval_loss": 1.0}, {"eval_loss": 2.0}),
        ("bleu", True, {"eval_bleu": 0.3, "eval_chrf": 12.2}, {"eval_bleu": 0.6, "eval_chrf": 9.4}),  # chance
    ],
)
def test_weights_are_compared_as_checkpoints_were(metric, greater, better, worse):
    """Without a metric BLEU decides, and without BLEU the likelihood."""
    args = SimpleNamespace(metric_for_best_model=metric, greater_is_better=greater)
    for candidates in ({"better": better, "worse": worse}, {"worse": worse, "better": better}):
        assert finishing.best_of(candidates, args) == "better"


def test_the_average_of_a_run_with_further_references_and_held_out_training_pairs(tmp_path, monkeypatch):
    """The average is taken always, as in both papers; every tenth training pair is held out for validation.

    References are below data.root, scored, kept beside the run, and held out with their sources.
    """
    recipe, run = write_recipe(tmp_path), tmp_path / "run"
    sources, targets = ((tmp_path / f"test.{language}").read_text().splitlines() for language in ("en", "de"))
    others = [f"{line} Ja." for line in targets]
    (tmp_path / "other.de").write_text("".join(f"{line}\n" for line in others))
    with open(tmp_path / "train.en", "a") as source, open(tmp_path / "train.de", "a") as target:
        source.write(f"{sources[0]}\n{sources[1]}\n")
        target.write(f"{others[0]}\n{sources[0]}\n")
    scores = iter([{"eval_bleu": 9.0}, {"eval_bleu": 1.0}])
    monkeypatch.setattr(finishing, "evaluate", lambda trainer: next(scores))
    given = {"data.valid": "null", "data.valid_every": 10, "evaluation.always_average": "true"}
    given |= {"data.test.more_references": "[other.de, other.de]", "data.cleaning.drop_held_out": "pair"}
    given |= {"evaluation.published_bleu": "wang2019"}
    options = [text for name, value in given.items() for text in (f"--{name}", value)]
    train(recipe, *options)
    results = json.loads((run / RESULTS).read_text())
    assert results["chosen"]["kind"] == "average of the last 2 checkpoints"
    expected = average_checkpoints([str(run / f"checkpoint-{step}") for step in (3, 6)])
    saved = load_file(run / FINAL / "model.safetensors")
    assert all(saved[name].equal(expected[name]) for name in saved)
    filters = results["data"]["filters"]
    assert (filters["total"], filters["held out"]) == (272, 1)
    assert [(run / name).read_text().splitlines() for name in ("test.ref", "test.ref1")] == [targets, others]
    assert results["test"]["bleu_signature"].startswith("nrefs:3|")
    card = (run / STANDARD / "README.md").read_text()
    assert f"* BLEU as the paper wang2019 computed it: {results['test']['published_bleu']:.2f}." in card
    (tmp_path / "other.de").write_text("eins\nzwei\n")
    refused = train(recipe, *options, "--output_dir", tmp_path / "no", code=1).stderr
    assert "data.test.more_references: " in refused
    assert f"{tmp_path / 'other.de'}: has 2 references for 20 sentences" in refused


def test_a_finished_run_is_not_trained_again(finished, recipe_file):
    again = train(recipe_file, code=1)
    assert again.stderr.startswith("error: ") and "holds a finished run" in again.stderr


def test_evaluate_scores_as_training_does(finished, recipe_file):
    folder, _ = finished
    files = ["--source", str(recipe_file.parent / "test.en"), "--target", str(recipe_file.parent / "test.de")]
    options = ["--num-beams", "2", "--language", "de"]
    result = CliRunner().invoke(app, ["evaluate", str(folder / STANDARD), *files, *options], catch_exceptions=False)
    assert json.loads(result.stdout)["bleu"] == json.loads((folder / RESULTS).read_text())["test"]["bleu"]


DATED = ("README.md", "results.json", "recipe.yaml", "training_args.bin", "trainer_state.json", "manifest.json")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file of a run; without the content of those that hold times or the name of the folder."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: None if path.name in DATED else path.read_bytes() for name, path in files.items()}


def facts_without_times(folder: Path) -> dict:
    results = json.loads((folder / RESULTS).read_text())
    for row in results["history"]:
        for name in [name for name in row if "second" in name or "runtime" in name]:
            del row[name]
    return {name: results[name] for name in ("status", "history", "chosen", "test", "model", "omega", "data")}


def test_a_run_that_is_killed_at_its_end_finishes_with_the_same_files(finished, recipe_file, tmp_path, monkeypatch):
    """Killed twice after training; the same command goes on from the last checkpoint."""
    folder = tmp_path / "run"

    def kill(*args, **kwargs):
        raise Killed

    for step in ("average_checkpoints", "write_card"):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(f"admin_nmt.runs.finishing.{step}", kill)
            patch.setattr("admin_nmt.runs.training_run.rehearse_finish", lambda *run: None)
            train(recipe_file, "--output_dir", folder)
        assert not (folder / RESULTS).exists()
    (folder / ".standard-x").mkdir()  # where SIGKILL leaves what an exception would have taken away
    train(recipe_file, "--output_dir", folder)
    assert contents(folder) == contents(finished[0])
    assert facts_without_times(folder) == facts_without_times(finished[0])


def test_a_beam_wider_than_the_vocabulary_is_told_before_training(recipe_file, tmp_path):
    place = ["--output_dir", tmp_path / "run"]
    for field in ("evaluation.num_beams", "training.generation_num_beams"):
        refused = train(recipe_file, *place, f"--{field}", 600, code=1)
        assert f"error: {field} is 600, and the vocabulary has 400 tokens" in refused.stderr
        assert "[2/5]" not in refused.stdout


@pytest.mark.parametrize("step", ["export", "reported_scores", "write_card"])
def test_what_would_fail_after_training_fails_before_it(recipe_file, tmp_path, monkeypatch, step):
    def overflow(*args, **kwargs):
        raise OverflowError("Numerical result out of range")

    monkeypatch.setattr(f"admin_nmt.runs.finishing.{step}", overflow)
    refused = train(recipe_file, "--output_dir", tmp_path, code=1)
    assert "what follows training would fail: Numerical result out of range" in refused.stderr
    assert "[2/5]" not in refused.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "recipe.yaml", "training_pairs.json"}


def test_a_folder_without_checkpoints_is_free(recipe_file, tmp_path):
    """A first attempt that failed at its data, a recipe cut off by a full disk, or a user's own one stop nobody."""
    claimed = tmp_path / "run" / RECIPE
    wrong = train(recipe_file, "--output_dir", tmp_path / "run", "--data.train.source", "x.en", code=1)
    assert "x.en: No such file" in wrong.stderr and claimed.exists()
    for content in (claimed.read_text(), "", "data: {train: {source: x.en}}\n", "a: [\n"):
        claimed.write_text(content)
        (tmp_path / "run" / f".{RECIPE}-0123456789abcdef").write_text("half")  # where a process was killed
        claim_folder(load_recipe(recipe_file, ["--output_dir", str(tmp_path / "run")]))
        assert {path.name for path in claimed.parent.iterdir()} == {"lock", RECIPE}
        assert yaml.safe_load(claimed.read_text())["data"]["train"]["source"] != "x.en"


def test_a_claim_names_what_a_checkpoint_cannot_change(recipe_file, tmp_path):
    place = ["--output_dir", str(tmp_path)]
    claim_folder(load_recipe(recipe_file, place))
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "trainer_state.json").write_text("{}")
    for moved in (["--data.cache_dir", "x"], ["--training.max_steps", "77"], ["--evaluation.num_beams", "2"]):
        claim_folder(load_recipe(recipe_file, [*place, *moved]))
    fixed = {"training.max_tokens": "99", "training.seed": "5", "training.adam_beta2": "0.9", "data.max_length": "9"}
    for field, value in fixed.items():
        with pytest.raises(ValueError, match=f"were trained with {field} .*{value}: choose another output_dir"):
            claim_folder(load_recipe(recipe_file, [*place, f"--{field}", value]))


def test_two_processes_cannot_train_in_one_folder(recipe_file, tmp_path):
    hold = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    command = [sys.executable, "-c", hold, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "\n"
        refused = train(recipe_file, "--output_dir", tmp_path, code=1)
        other.communicate("\n")
    assert f"{tmp_path}: another process trains there" in refused.stderr


@pytest.mark.slow
def test_two_processes_and_two_vocabularies(recipe_file, tmp_path):
    """`accelerate launch` on two processes: JSONL data, a vocabulary for each side, no validation set."""
    recipe = yaml.safe_load(recipe_file.read_text()) | {"output_dir": str(tmp_path / "run")}
    recipe["data"] = {"root": str(tmp_path), "cache_dir": str(tmp_path / "cache")}
    for split, pairs in phrasebook(200, 1, 15).items():
        lines = [json.dumps({"source": source, "target": target}) for source, target in pairs]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
        if split != "valid":
            recipe["data"][split] = {"source": f"{split}.jsonl"}
    recipe["tokenizer"] = {"vocab_size": 300, "joint": False, "target_vocab_size": 320}
    recipe["training"] = {"max_tokens": 256, "max_steps": 2, "save_strategy": "no"}
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe | {"evaluation": {"num_beams": 1}}))
    launch = "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no"
    command = [sys.executable, *launch.split(), "--dynamo_backend", "no", "-m", "admin_nmt", "train", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "training on 2 processes of 1 thread each" in result.stdout
    assert result.stdout.count("[5/5]") == 1
    assert json.loads((tmp_path / "run" / RESULTS).read_text())["test_sentences"] == 15
    assert (tmp_path / "run" / STANDARD / "target_tokenizer" / "tokenizer.json").exists()


@pytest.mark.slow
def test_a_killed_run_goes_on(recipe_file, tmp_path):
    folder = tmp_path / "run"
    overrides = ["--output_dir", str(folder), "--training.max_steps", "30", "--training.eval_bleu", "false"]
    overrides += ["--training.metric_for_best_model", "eval_loss"]
    command = [sys.executable, str(TRAINING / "train.py"), str(recipe_file), *overrides]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not complete_checkpoints(folder):  # a state that was cut off would rightly start the run anew
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    for field, value in (("model.variant", "pre_ln"), ("training.learning_rate", "1e-4")):
        changed = train(recipe_file, *overrides, f"--{field}", value, code=1)
        assert f"its checkpoints were trained with {field} " in changed.stderr
    data = recipe_file.parent / "train.de"
    text = data.read_text()
    lines = text.splitlines()
    data.write_text("\n".join([lines[1], lines[0], *lines[2:]]))  # the same vocabulary, batches and names
    refused = train(recipe_file, *overrides, code=1).stderr
    assert "its checkpoints were trained on other pairs than its data files give now" in refused
    data.write_text(text)
    printed = train(recipe_file, *overrides).stdout
    assert f"continuing from {folder}" in printed
    assert json.loads((folder / RESULTS).read_text())["chosen"]["updates"] == 30
    weights = (folder / FINAL / "model.safetensors").read_bytes()
    (folder / RESULTS).unlink()  # as if it was killed after the last update
    train(recipe_file, *overrides)
    assert (folder / FINAL / "model.safetensors").read_bytes() == weights
