"""Damaged files: a run ends as if nothing had been, or one line names the file; the result is never another one."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest
from campaign import assert_done, assert_same, assert_told, contents, run, trials
from toy import DAMAGES, bit_flipped

pytestmark = pytest.mark.campaign

CHECKPOINTS = [2, 4, 6, 8]
AFTER_TRAINING = ("final", "standard", "results.json", "test.hyp", "test.ref", "test.src", "curve.png")


def damage(folder: Path, number: int, draw: Random) -> tuple[Path, str]:
    """Damage a file of a folder: trial by trial each file in each way; gives the file and the way."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)
    lap, index = divmod(number, len(files))
    kind = DAMAGES[(lap + index) % len(DAMAGES)]
    print(kind.__name__, files[index].relative_to(folder))
    kind(files[index], draw)
    return files[index], kind.__name__


def assert_continues(path: Path, work: Path, finished: Path) -> None:
    """The run ends with the same result, or a line names the file."""
    ended, expected = run("train", "recipe.yaml", folder=work), contents(finished / "run")
    if ended.code:
        # One that is gone is called by its folder.
        assert_told(ended, path.name, *([] if path.exists() else [str(path.parent.relative_to(work))]))
        return
    if path.is_relative_to(work / "run"):  # that a file which is not read again stays damaged is no other result
        shutil.rmtree(path.parent)
        expected = {name: content for name, content in expected.items() if not name.startswith(f"{path.parent.name}/")}
    assert_same(expected, work / "run")


@pytest.mark.parametrize("number", trials(150))
def test_a_checkpoint(number, finished: Path, draw: Random, folder: Path):
    """The newest of several, and sometimes the only one, of a run that was interrupted."""
    newest, work = draw.choice([2, 6, 6, 6, 8]), folder / "work"
    shutil.copytree(finished, work)
    for name in (*AFTER_TRAINING, *(f"checkpoint-{update}" for update in CHECKPOINTS if update > newest)):
        path = work / "run" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    path, _ = damage(work / "run" / f"checkpoint-{newest}", number, draw)
    assert_continues(path, work, finished)


@pytest.mark.parametrize("number", trials(130))
def test_the_cache(number, finished: Path, draw: Random, folder: Path):
    work = folder / "work"
    shutil.copytree(finished, work)
    shutil.rmtree(work / "run")
    path, _ = damage(work / "cache", number, draw)
    assert_continues(path, work, finished)


COMMANDS = {
    "translate": "translate MODEL --input test.en --output translations",
    "score": "score MODEL --source test.en --target test.de --output scores",
    "info": "model info MODEL",
    "export": "model export MODEL --output exported",
    "fold": "model fold MODEL --output folded",
}
CASES = [("standard", name) for name in ("translate", "score", "info")] + [("final", name) for name in COMMANDS]


@pytest.fixture(scope="session")
def straight(finished: Path, tmp_path_factory: pytest.TempPathFactory):
    """What each command gives with the whole folder."""

    @cache
    def get(model: str, name: str):
        ended, left = use(model, name, finished, tmp_path_factory.mktemp("straight") / "work")
        assert_done(ended)
        return ended, left

    return get


def use(model: str, name: str, finished: Path, work: Path, prepare: Callable[[Path], object] = lambda folder: None):
    """Run a command on a copy of a model folder; gives how it ended and the files that it left, without the model's."""
    shutil.copytree(finished, work, ignore=shutil.ignore_patterns("cache", "run"))
    shutil.copytree(finished / "run" / model, work / model)
    prepare(work / model)
    ended = run(*COMMANDS[name].replace("MODEL", model).split(), folder=work)
    shutil.rmtree(work / model)
    return ended, contents(work)


@pytest.mark.parametrize(("model", "name"), CASES)
@pytest.mark.parametrize("number", trials(25))
def test_a_model_folder(number, model, name, straight, finished: Path, draw: Random, folder: Path):
    offset = CASES.index((model, name)) * 25  # other files and kinds for each command
    damaged: list[tuple[Path, str]] = []
    work = folder / "work"
    ended, left = use(model, name, finished, work, lambda path: damaged.append(damage(path, number + offset, draw)))
    if ended.code:
        assert_told(ended, damaged[0][0].name, model)
        return
    expected, files = straight(model, name)
    # A model folder is in the Hub's format, which has no checksums of its own: the Hub compares them on the way.
    assert damaged[0][1] == bit_flipped.__name__ or (ended.out == expected.out and left == files)
