"""`admin-nmt train` on a small corpus of plain files, and what follows the training."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file
from toy import Killed, write_recipe
from typer.testing import CliRunner, Result

from admin_nmt.cli.app import app
from admin_nmt.hub.run_folder import CURVE, FINAL, RESULTS, STANDARD, TRANSLATIONS
from admin_nmt.runs import finishing
from admin_nmt.weights.averaging import average_checkpoints


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


@pytest.fixture
def quick(monkeypatch) -> None:
    """No prediction of the memory and no rehearsal of the end, which the run of `finished` has."""
    for module in ("runs.reporting", "trainer.memory_prediction"):
        monkeypatch.setattr(f"admin_nmt.{module}.predicted_peak", lambda *given: 10**8)
    monkeypatch.setattr("admin_nmt.runs.training_run.rehearse_finish", lambda *run: None)


def test_train_leaves_a_standard_model_and_results_once(finished, recipe_file):
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
    assert "holds a finished run" in train(recipe_file, code=1).stderr


def test_the_better_of_checkpoint_and_average_is_saved_also_without_a_test_set(quick, tmp_path, monkeypatch):
    """By validation BLEU; the NLL says the opposite.

    The run, which is shorter than a log interval, has its speed, and a vocabulary for each side.
    """
    scores = iter([{"eval_bleu": 5.0, "eval_loss": 4.0}, {"eval_bleu": 3.0, "eval_loss": 2.0}])
    monkeypatch.setattr(finishing, "evaluate", lambda trainer: next(scores))
    two = "{vocab_size: 300, joint: false, target_vocab_size: 320}"
    train(write_recipe(tmp_path), "--data.test", "null", "--training.logging_steps", 500, "--tokenizer", two)
    run = tmp_path / "run"
    results = json.loads((run / RESULTS).read_text())
    training, chosen = results["training"], results["chosen"]
    assert training["updates"] == 6 and training["target_tokens"] > 0 and training["tokens_per_second"] > 0
    assert all((run / STANDARD / name / "tokenizer.json").exists() for name in (".", "target_tokenizer"))
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


def test_the_average_of_a_run_with_further_references_and_held_out_training_pairs(quick, tmp_path, monkeypatch):
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


def test_killed_after_training_a_run_finishes_with_the_same_files(finished, quick, recipe_file, tmp_path, monkeypatch):
    """Killed twice after training; the same command goes on from the last checkpoint."""
    folder = tmp_path / "run"

    def kill(*args, **kwargs):
        raise Killed

    for step in ("average_checkpoints", "write_card"):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(f"admin_nmt.runs.finishing.{step}", kill)
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
