"""SIGKILL at random moments: the same command, given again, ends with the result of a straight run."""

import os
import signal
import sys
import time
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from campaign import Ended, Running, assert_done, assert_same, begin, contents, run, trials

pytestmark = pytest.mark.campaign

COMMANDS = {
    "train": "train recipe.yaml",
    "prepare": "prepare recipe.yaml --num-proc 2",
    "translate": "translate run/standard --num-beams 2 --input train.en --chunk 20 --output out.de",
    "synthesize": "synthesize run/standard --input train.de --generates source --sampling --max-ratio 0 --chunk 50 "
    "--output out.tsv",
    "export": "model export run/final --output exported",
}
COUNTS = {"train": 60, "prepare": 40, "translate": 30, "synthesize": 30, "export": 30}
DONE_ALREADY = "holds a finished run", "exists already"  # it was killed after its last write
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}


class Straight(NamedTuple):
    """A run without a kill."""

    contents: dict[str, Any]
    seconds: float
    changes: int


def at_changes(log: str, last: int | None = None) -> None:
    """Count in a file, a byte each, what a process and its children change on the disk; kill them at change `last`."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)

    def hook(event: str, arguments: tuple) -> None:
        if event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            os.write(file, b".")
            if os.fstat(file).st_size == last:
                os.killpg(0, signal.SIGKILL)

    sys.addaudithook(hook)


@pytest.fixture(scope="session")
def straight(inputs: Path, finished: Path, tmp_path_factory: pytest.TempPathFactory):
    """Runs each command once, without a kill."""

    @cache
    def get(name: str) -> Straight:
        folder = begin(name, inputs, finished, tmp_path_factory.mktemp("straight") / name)
        log = tmp_path_factory.mktemp("log") / name
        ended = run(*COMMANDS[name].split(), folder=folder, setup=partial(at_changes, str(log)))
        assert_done(ended)
        return Straight(contents(folder), ended.seconds, log.stat().st_size)

    return get


def killed(command: list[str], folder: Path, moment: float, by_clock: bool, straight: Straight) -> Ended:
    """Start a command and kill it after this part of a straight run, by the clock or by what it changes on the disk."""
    if not by_clock:
        last = 1 + int(moment * straight.changes)
        return run(*command, folder=folder, setup=partial(at_changes, f"{folder}.changes", last))
    running = Running(command, folder)
    time.sleep(moment * straight.seconds)
    running.kill()
    return running.wait()


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, count in COUNTS.items() for number in trials(count)]
)
def test_a_killed_command_ends_with_the_same_result(name, number, straight, inputs, finished, draw: Random, folder):
    command, expected = COMMANDS[name].split(), straight(name)
    work = begin(name, inputs, finished, folder / "work")
    for _ in range(draw.choice([1, 1, 2, 3])):
        print(moment := draw.random(), by_clock := draw.random() < 0.5)
        ended = killed(command, work, moment, by_clock, expected)
        if ended.code != -signal.SIGKILL:
            break
    if ended.code == -signal.SIGKILL:
        ended = run(*command, folder=work)
    assert ended.code == 0 or any(reason in ended.told for reason in DONE_ALREADY), ended.tail
    assert_same(expected.contents, work)
