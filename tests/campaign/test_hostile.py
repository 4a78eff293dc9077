"""Pickles and folders that try to run code or to swell: no code runs, time and memory are bounded, one line tells."""

import resource
import shutil
from pathlib import Path
from random import Random

import pytest
import yaml
from campaign import assert_told, run, trials
from hostile import BOMBS, HOSTILE_FOLDERS, hostile_checkpoint

pytestmark = pytest.mark.campaign

SECONDS = 30
MEMORY = 2 << 30  # bytes, beyond what the imports take


def limit_memory() -> None:
    """Let this process allocate no more than `MEMORY`."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@pytest.fixture
def work(folder: Path) -> Path:
    """A folder with the dictionary and the codes that go with a checkpoint, and a user who says yes to everything."""
    work = folder / "work"
    work.mkdir()
    (work / "dict.txt").write_text("w0 1\n")
    (work / "codes").write_text("#version: 0.2\na b\n")
    (work / "yes").write_text("y\n" * 20)
    return work


def convert(work: Path) -> None:
    """convert-fairseq refuses the checkpoint with one line, soon."""
    files = ["--dicts", "dict.txt", "--bpe-codes", "codes"]
    command = ["model", "convert-fairseq", "checkpoint.pt", "--output", "out", *files]
    assert_told(run(*command, folder=work, setup=limit_memory, stdin=work / "yes", patience=SECONDS), "checkpoint.pt")
    assert not (work / "out").exists()


@pytest.mark.parametrize("number", trials(150))
def test_a_checkpoint_that_calls_a_function(number, work, draw: Random):
    canary = work / "canary"
    (work / "checkpoint.pt").write_bytes(hostile_checkpoint(draw, canary)[0])
    convert(work)
    assert not canary.exists()


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb(bomb, work):
    BOMBS[bomb](work / "checkpoint.pt")
    convert(work)


FILES = "--source test.en --target test.de"
COMMANDS = [
    "translate model",
    f"score model {FILES}",
    f"evaluate model {FILES} --language de",
    "synthesize model --input test.en --generates target --output out.tsv",
    "translate model --backend ctranslate2",
    "model info model",
    "model export model --output out",
    "model fold model --output out",
    f"model profile model {FILES}",
    "model average model --output out",
    "train from-it.yaml",
    "train with-its-tokenizer.yaml",
]


def write_recipes(work: Path) -> None:
    """Recipes that start from a model, or take its tokenizer."""
    recipe = yaml.safe_load((work / "recipe.yaml").read_text()) | {"output_dir": "another"}
    start = recipe | {"model": {"from_pretrained": "model"}}
    del start["tokenizer"]
    (work / "from-it.yaml").write_text(yaml.safe_dump(start))
    (work / "with-its-tokenizer.yaml").write_text(yaml.safe_dump(recipe | {"tokenizer": {"path": "model"}}))


@pytest.mark.parametrize("number", trials(len(HOSTILE_FOLDERS) * len(COMMANDS)))
def test_a_folder_with_code(number, finished: Path, work, draw: Random):
    lap, index = divmod(number, len(COMMANDS))
    command = COMMANDS[index]
    kind = list(HOSTILE_FOLDERS)[(lap + index) % len(HOSTILE_FOLDERS)]
    print(kind, command)
    shutil.copytree(finished, work, ignore=shutil.ignore_patterns("run"), dirs_exist_ok=True)
    shutil.copytree(finished / "run" / draw.choice(["final", "standard"]), work / "model")
    write_recipes(work)
    canary = work / "canary"
    HOSTILE_FOLDERS[kind](work / "model", canary)
    ended = run(*command.split(), folder=work, stdin=work / "yes", setup=limit_memory, patience=3 * SECONDS)
    assert not canary.exists()
    if ended.code:  # some commands need nothing of what is hostile
        assert_told(ended)


@pytest.mark.parametrize("number", trials(6))
def test_a_checkpoint_of_a_run_with_pickles(number, finished: Path, work):
    """A run goes on from what somebody else has left."""
    shutil.copytree(finished, work, dirs_exist_ok=True)
    canary = work / "canary"
    for checkpoint in sorted((work / "run").glob("checkpoint-*"))[number % 4 :]:
        HOSTILE_FOLDERS["pickles"](checkpoint, canary)
    (work / "run" / "results.json").unlink()
    ended = run("train", "recipe.yaml", folder=work, setup=limit_memory, stdin=work / "yes")
    assert not canary.exists()
    if ended.code:
        assert_told(ended)
