"""A disk that fills up at any moment: nothing written is lost, one line says so, and with room the command ends."""

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from campaign import assert_done, assert_same, assert_told, begin, contents, run, trials
from test_kills import COMMANDS as KILLED

pytestmark = pytest.mark.campaign

COMMANDS = KILLED | {
    "fold": "model fold run/final --output folded",
    "average": "model average run --last 3 --output averaged",
    "evaluate": "evaluate run/standard --source test.en --target test.de --language de --output out",
}
COUNTS = dict.fromkeys(COMMANDS, 5) | {"train": 20, "prepare": 10}
DISK = 64  # MB


@pytest.fixture
def disk(folder: Path) -> Iterator[Path]:
    """A small file system."""
    path = folder / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}m", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture(scope="session")
def straight(inputs: Path, finished: Path, tmp_path_factory: pytest.TempPathFactory):
    """What each command leaves on a disk with room, and the bytes that it writes."""

    @cache
    def get(name: str) -> tuple[dict[str, Any], int]:
        work = begin(name, inputs, finished, tmp_path_factory.mktemp("room") / name)
        before = size(work)
        assert_done(run(*COMMANDS[name].split(), folder=work))
        return contents(work), size(work) - before

    return get


def size(folder: Path) -> int:
    """Bytes of its files on a disk, in blocks of a page."""
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, count in COUNTS.items() for number in trials(count)]
)
def test_a_full_disk(name, number, straight, disk, inputs, finished, draw: Random):
    expected, written = straight(name)
    work, filler = begin(name, inputs, finished, disk / "work"), disk / "filler"
    print("bytes left:", left := int(written * draw.random()))
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - left))
    # What the command prints lies on another disk.
    ended = run(*COMMANDS[name].split(), folder=work, beside=disk.parent)
    if ended.code:
        assert_told(ended)
        assert "full" in ended.told or "space" in ended.told, ended.told
        saved = list(work.glob("run/checkpoint-*/trainer_state.json")) if name == "train" else []
        filler.unlink()
        ended = run(*COMMANDS[name].split(), folder=work, beside=disk.parent)
        assert_done(ended)
        assert not saved or b"continuing from run/checkpoint-" in ended.out
    assert_same(expected, work)
