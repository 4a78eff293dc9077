"""Chunks that several processes translate come in their order, and everything that goes wrong is told in its turn.

The new processes import this file, so nothing heavy is imported here.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from admin_nmt.decoding.file_translation import PartialFile, chunks, translate_file
from admin_nmt.decoding.worker_processes import one_after_the_other, translating

LINES = [f"line {number}" for number in range(10)]
PATIENCE = 100.0  # seconds, until a test fails that would wait forever


def obey(folder: Path, lines: list[str]) -> list[str]:
    """Reverses lines, and does what some of them say."""
    for line in lines:
        word, _, name = line.partition(" ")
        if word == "touch":
            (folder / name).touch()
        elif word == "await":
            give_up = time.monotonic() + PATIENCE
            while not (folder / name).exists():
                assert time.monotonic() < give_up
                time.sleep(0.01)
        elif word == "refuse":
            raise ValueError(f"no {name}")
        elif word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
    return [line[::-1] for line in lines]


def children() -> set[int | None]:
    """Processes of this one that run."""
    return {process.pid for process in multiprocessing.active_children()}


def assert_no_others(before: set[int | None]) -> None:
    """Only these run, as soon as a thread of the pool has noted which have ended."""
    give_up = time.monotonic() + PATIENCE
    while children() != before:
        assert time.monotonic() < give_up
        time.sleep(0.01)


def load(folder: Path):
    return partial(obey, folder)


@pytest.fixture(scope="module", autouse=True)
def command_line():
    """The new processes are those of the command line, which load nothing heavy before they must."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["admin-nmt"])
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("signs")


@pytest.fixture(scope="module")
def two(folder):
    """Two processes, for tests in which nothing goes wrong."""
    with translating([partial(load, folder)] * 2) as in_order:
        yield in_order


def test_the_order_is_that_of_the_chunks(two):
    """The first chunk waits until the last one has been translated."""
    parts = [["await last", "a"], ["b"], ["c"], ["touch last"]]
    assert list(two(parts)) == [(part, [line[::-1] for line in part]) for part in parts]


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("refuse it", ValueError, "^no it$"),
        ("die now", ChildProcessError, "fewer processes"),
    ],
)
def test_what_fails_is_told_after_what_is_finished(folder, tmp_path, line, kind, message):
    lines = [*LINES[:7], line, *LINES[7:]]
    before = children()
    with (
        pytest.raises(kind, match=message),
        PartialFile(tmp_path / "out", {}) as file,
        translating([partial(load, folder)] * 2) as processes,
    ):
        translate_file(processes, lines, file, chunk_size=2)
    assert_no_others(before)
    whole = "".join(f"{line[::-1]}\n" for line in LINES[:6])
    kept = (tmp_path / "out.partial").read_text() if (tmp_path / "out.partial").exists() else ""
    assert kept == whole or (line == "die now" and whole.startswith(kept))  # the pool ends with a process of it
    with PartialFile(tmp_path / "out", {}) as file:
        translate_file(one_after_the_other(lambda part: [line[::-1] for line in part]), lines, file, chunk_size=2)
    assert (tmp_path / "out").read_text() == "".join(f"{line[::-1]}\n" for line in lines)


def test_what_the_lines_raise_comes_after_the_lines_before_it(two):
    def lines():
        yield "a"
        yield "b"
        raise ValueError("line 3 is not valid UTF-8")

    parts = two(chunks(lines(), 1))
    assert [next(parts)[0], next(parts)[0]] == [["a"], ["b"]]
    with pytest.raises(ValueError, match="line 3"):
        next(parts)


def test_an_interrupt_ends_all_processes(folder, request):
    """Ctrl-C reaches every process of the terminal, and this one ends the others."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    request.addfinalizer(partial(signal.signal, signal.SIGINT, usual))
    before = children()
    with pytest.raises(KeyboardInterrupt), translating([partial(load, folder)] * 2) as in_order:
        parts = in_order([["a"], ["await what never comes"]])
        assert next(parts) == (["a"], ["a"])
        for process in children() - before:
            os.kill(process, signal.SIGINT)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        next(parts)
    assert_no_others(before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
