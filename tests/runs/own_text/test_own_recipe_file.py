"""`admin-nmt train` on somebody's own files: the recipe it leaves, the same command again, and a whole run."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from toy import ENVIRONMENT
from typer.testing import CliRunner, Result

from admin_nmt.cli.app import app
from admin_nmt.data.phrasebook import phrasebook
from admin_nmt.trainer.checkpoints import complete_checkpoints


@pytest.fixture
def working_folder(tmp_path, monkeypatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trained(monkeypatch) -> list:
    """The recipes that would be trained, planned without a prediction of their memory."""
    recipes: list = []
    monkeypatch.setattr("admin_nmt.runs.own_text.plan._peak", lambda *_: 10**8)
    monkeypatch.setattr("admin_nmt.runs.training_run.run_recipe", recipes.append)
    return recipes


def write(name: str, pairs: int = 300) -> None:
    """Files NAME.en and NAME.de."""
    for language, lines in zip(("en", "de"), zip(*phrasebook(pairs, 1, 1)["train"], strict=True), strict=True):
        Path(f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def train(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["train", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == code, result.stderr[-3000:]
    return result


FILES = ["--source", "train.en", "--target", "train.de"]


def test_a_recipe_is_written_once_and_then_kept(working_folder, trained):
    write("train")
    printed = train(*FILES, "--training.max_steps", 30).stdout
    path = Path("runs/train-en-de.yaml")
    assert printed.startswith(f"{path}: ")
    first = path.read_text()
    assert "  max_steps: 30  # given on the command line" in first
    assert {file.name for file in Path("runs/train-en-de/data").iterdir()} == {
        f"{split}.{language}" for split in ("valid", "test") for language in ("en", "de")
    }
    path.write_text(f"# mine\n{first}")
    train(*FILES, "--training.max_steps", 30)
    assert path.read_text() == f"# mine\n{first}"
    held_out = Path("runs/train-en-de/data")
    earlier = {file.name: file.read_text() for file in held_out.iterdir()}
    shutil.rmtree("runs/train-en-de")
    train(*FILES)
    assert {file.name: file.read_text() for file in held_out.iterdir()} == earlier
    train(path)
    assert trained[0].as_dict() == trained[1].as_dict() == trained[2].as_dict() == trained[3].as_dict()
    assert trained[0].output_dir == "runs/train-en-de"


def test_output_and_languages_are_taken(working_folder, trained):
    write("train")
    Path("train.en").rename("a.txt")
    Path("train.de").rename("b.txt")
    files = ["--source", "a.txt", "--target", "b.txt"]
    refused = train(*files, code=1).stderr
    assert refused.startswith("error: a.txt and b.txt: ") and "--languages" in refused and refused.count("\n") == 1
    train(*files, "--languages", "en", "de", "--output", "out/mine/")
    recipe = trained[0]
    assert (recipe.output_dir, recipe.languages) == ("out/mine", ["en", "de"])
    assert recipe.data.cache_dir == "out/cache"
    assert recipe.data.valid.source == "out/mine/data/valid.en"
    other = train(*files, "--languages", "en", "fr", "--output", "out/mine", code=1).stderr
    assert "out/mine.yaml: " in other
    train(*files, "--languages", "en", "de", "--output", "2024")  # a name, whatever YAML makes of it
    assert trained[-1].output_dir == "2024" and Path("2024", "data", "valid.en").exists()


def test_cleaning_and_cache_of_the_command_line_count_while_the_text_is_read(working_folder, trained):
    """By default one side of these pairs has three times the words of the other, and none would be left."""
    lines = [f"word number {i} of a long line of many words" for i in range(300)]
    Path("train.en").write_text("\n".join(lines))
    Path("train.de").write_text("\n".join(f"Wort {i}" for i in range(300)))
    assert "cleaning leaves 0 (length ratio 300)" in train(*FILES, code=1).stderr
    shutil.rmtree("runs")
    train(*FILES, "--data.cleaning.max_ratio", "null", "--data.cache_dir", "large/disk")
    assert trained[0].data.cache_dir == "large/disk" and list(Path("large/disk").glob("pairs-*.arrow"))
    assert not Path("runs/cache").exists()
    held_out = {file: file.read_text() for file in Path("runs/train-en-de/data").iterdir()}
    shutil.rmtree("runs/train-en-de")
    train(*FILES)
    assert {file: file.read_text() for file in held_out} == held_out


def test_pairs_in_one_file_with_languages_as_columns(working_folder, trained):
    rows = [{"en": source, "de": target} for source, target in phrasebook(300, 1, 1)["train"]]
    Path("pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    train("--source", "pairs.jsonl")
    assert trained[0].languages == ["en", "de"]
    assert yaml.safe_load(Path("runs/pairs-en-de.yaml").read_text())["data"]["train"] == {
        "source": "pairs.jsonl",
        "columns": ["en", "de"],
    }


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--training.max_stepz", "3"], "--training.max_stepz"),
        (["--languages", "en", "dee"], "--languages"),
        (["--training.eval_steps", "30", "--training.save_steps", "40"], "recipe: training: "),
        (["--training.num_train_epochs", ".inf"], "--training.num_train_epochs"),
        (["--output_dir", "2024"], "--output_dir 2024"),
        (["--data.valid_every", "9"], "--data.valid_every"),
        (["--training", "{max_steps: 9}"], "--training: "),
        (["--languages", "[en, 5]"], "--languages: "),
    ],
)
def test_wrong_fields_are_refused_before_anything_is_read(working_folder, monkeypatch, options, named):
    write("train")
    monkeypatch.setattr("admin_nmt.runs.own_text.recipe_file.summarize", lambda *_, **__: pytest.fail("read"))
    assert train(*FILES, *options, code=1).stderr.startswith(f"error: {named}")
    assert not Path("runs").exists()


@pytest.mark.slow
def test_interrupted_the_same_command_goes_on_and_the_model_translates(working_folder):
    """The real command on 1,500 pairs: SIGTERM in the middle, then the same command again."""
    write("train", 1500)
    small = ["--training.max_steps", 60, "--training.eval_steps", 30, "--model.encoder_layers", 2]
    command = [sys.executable, "-m", "admin_nmt", "train", *FILES, *map(str, small)]
    run, log = Path("runs/train-en-de"), Path("log")
    with log.open("wb") as file, subprocess.Popen(command, env=ENVIRONMENT, stdout=file, stderr=file) as process:
        while not complete_checkpoints(run):
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 143, log.read_text()
    resumed = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert resumed.stdout.startswith("runs/train-en-de.yaml: the recipe of these files, as it is there\n")
    assert f"continuing from {run}/checkpoint-" in resumed.stdout
    results = json.loads((run / "results.json").read_text())
    assert results["training"]["updates"] == 60
    assert results["data"]["sizes"]["valid"] == results["data"]["sizes"]["test"] == results["test_sentences"]
    assert results["data"]["filters"]["held out"] >= 2 * results["test_sentences"]
    translate = [*command[:3], "translate", str(run), "--input", str(run / "data" / "test.en")]
    translated = subprocess.run(translate, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert translated.stdout == (run / "test.hyp").read_text()
    assert "runs/train-en-de/standard" in translated.stderr


@pytest.mark.slow
def test_two_processes_train_by_one_recipe(working_folder):
    """One writes it and the held-out pairs, the other waits and takes them."""
    write("train")
    launch = "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no"
    command = [sys.executable, *launch.split(), "--dynamo_backend", "no", "-m", "admin_nmt", "train", *FILES]
    small = ["--training.max_steps", "2", "--model.encoder_layers", "2", "--model.decoder_layers", "1"]
    result = subprocess.run([*command, *small], env=ENVIRONMENT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.count("a recipe for train.en and train.de") == 1
    assert "[2/5] training on 2 processes of 1 thread each: admin, 2-1 layers" in result.stdout
    assert Path("runs/train-en-de/standard/config.json").exists()
