"""What all attacks share: commands that start at once, and the comparison of what they leave.

A server imports everything once and forks each command, so that one costs seconds less than a Python of its own.
"""

import hashlib
import json
import multiprocessing
import os
import re
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import yaml
from toy import write_recipe

SEED = int(os.environ.setdefault("ADMIN_NMT_CAMPAIGN_SEED", str(secrets.randbelow(10**6))))
SCALE = float(os.environ.get("ADMIN_NMT_CAMPAIGN_SCALE", 1))
PATIENCE = 180  # seconds that a command may take, which needs five

IMPORTED_ONCE = [
    *(f"admin_nmt.{name}" for name in ("cli.app", "decoding.synthesis", "hub.model_info", "weights.fairseq_folder")),
    *(f"admin_nmt.runs.{name}" for name in ("publishing", "training_run")),
    "matplotlib.backends.backend_agg",
    "torch.distributed.launcher.api",
    "transformers.models.marian.modeling_marian",
]

# What may differ between two runs that did the same: times, who held which lock or looked at which file, and what git
# says of the checkout while somebody works there.
TIMES = re.compile("runtime|per_second|minutes|peak_memory|seconds|^peak$|^commit$")  # peak: of memory
TIMES_IN_A_CARD = re.compile("a second|minutes|peak memory|^. commit .")
BAR = re.compile(r"\d+%\||\d(line|pairs) \[|pairs? \[")
CURSOR = re.compile(r"\x1b\[A")  # which several bars move up and down
NO_RESULT = re.compile(r"(^|/)(\.|lock$|digest-|manifest|_set-aside-)|\.lock$")  # half a checkpoint is set aside


def trials(count: int) -> range:
    """The numbers of as many trials as the scale makes of `count`."""
    return range(max(1, round(count * SCALE)))


@cache
def server() -> ForkServerContext:
    """Forks processes that have imported everything, without a network."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED_ONCE)
    before = dict(os.environ)
    os.environ.update({"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
    forkserver.ensure_running()
    os.environ.clear()
    os.environ.update(before)
    return context


def nothing() -> None:
    """No preparation."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, negative for a signal, and what it said."""

    code: int
    out: bytes
    err: str
    seconds: float

    @property
    def told(self) -> str:
        """The line that says what is wrong; a progress bar may be behind it."""
        lines = CURSOR.sub("", self.err).splitlines()
        return next((line for line in reversed(lines) if line.startswith("error: ")), "")

    @property
    def tail(self) -> str:
        """The end of what it said on stderr, without progress bars."""
        lines = [line for line in self.err.splitlines() if line.strip() and not BAR.search(line)]
        return "\n".join(lines[-30:])


class Running:
    """A command of `admin-nmt` in a folder and a process group of its own; what it prints lies beside the folder.

    Args:
        arguments: of the command.
        folder: where it runs.
        stdin: the file that it reads; by default it has none.
        setup: called in the new process before the command.
        beside: where what it prints goes, in place of the folder's own place.
    """

    def __init__(
        self,
        arguments: Iterable[object],
        folder: Path,
        *,
        stdin: str | Path = os.devnull,
        setup: Callable[[], Any] = nothing,
        beside: Path | None = None,
    ) -> None:
        self.out, self.err = ((beside or folder.parent) / f"{folder.name}.{stream}" for stream in ("stdout", "stderr"))
        task = [*map(str, arguments)], str(folder), [str(stdin), str(self.out), str(self.err)], setup
        self.process = server().Process(target=_run, args=task)
        self.process.start()
        self.started = time.monotonic()

    def kill(self) -> None:
        """SIGKILL for all its processes."""
        assert self.process.pid
        with suppress(ProcessLookupError):
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has no group yet
                os.kill(self.process.pid, signal.SIGKILL)

    def wait(self) -> Ended:
        """Wait for the end, which must come in time."""
        self.process.join(PATIENCE)
        if self.process.exitcode is None:
            self.kill()
            raise AssertionError(f"was still running after {PATIENCE} seconds; it said {self.err.read_text()[-2000:]}")
        seconds = time.monotonic() - self.started
        said = self.err.read_text(errors="replace") if self.err.exists() else ""
        return Ended(self.process.exitcode, self.out.read_bytes() if self.out.exists() else b"", said, seconds)


def _run(arguments: list[str], folder: str, streams: list[str], setup: Callable[[], Any]) -> None:
    os.setsid()
    multiprocessing.set_start_method(None, force=True)  # the system's own for its children, as in any command
    for number, path in enumerate(streams):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
        os.dup2(os.open(path, flags, 0o644), number)
    os.chdir(folder)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.argv = ["admin-nmt", *arguments]
    small_shards()
    setup()
    from admin_nmt.cli.app import main

    main()


def small_shards() -> None:
    """Have a few hundred pairs prepared in several files, as a large corpus is."""
    from admin_nmt.data import arrow_cache

    arrow_cache.SHARD, arrow_cache.BATCH = 120, 50


def run(*arguments: object, folder: Path, **options: Any) -> Ended:
    """A command from its start to its end; see [`Running`]."""
    return Running(arguments, folder, **options).wait()


def assert_done(ended: Ended) -> None:
    assert ended.code == 0, ended.tail


def assert_told(ended: Ended, *names: str) -> None:
    """A command failed with one line that holds one of the names."""
    assert ended.code == 1 and "Traceback" not in ended.err and ended.told, f"exit code {ended.code}:\n{ended.tail}"
    assert not names or any(name in ended.told for name in names), ended.told


def contents(folder: Path) -> dict[str, Any]:
    """The files of a folder by their names: what is in them, without times."""
    names = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: _without_times(path) for name, path in names.items() if not NO_RESULT.search(name)}


def _without_times(path: Path) -> Any:
    if path.suffix == ".json":
        with suppress(ValueError):
            return _untimed(json.loads(path.read_text()))
    if path.name == "README.md":
        return [line for line in path.read_text(errors="replace").splitlines() if not TIMES_IN_A_CARD.search(line)]
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _untimed(part) for name, part in value.items() if not TIMES.search(name)}
    return [_untimed(part) for part in value] if isinstance(value, list) else value


def assert_same(expected: Mapping[str, Any], folder: Path) -> None:
    """A folder holds what is expected."""
    found = contents(folder)
    differ = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    assert not differ, "\n".join(f"{name}: {expected.get(name)} != {found.get(name)}" for name in differ)


def begin(name: str, inputs: Path, finished: Path, folder: Path) -> Path:
    """Copy what a command needs into a new folder: a recipe and its text, or a finished run besides."""
    return Path(shutil.copytree(inputs if name in ("train", "prepare") else finished, folder))


def new_inputs(folder: Path) -> Path:
    """A folder with a recipe of eight updates, a checkpoint every two, and its text; all paths are relative."""
    folder.mkdir()
    steps = {"max_steps": 8, "save_steps": 2, "eval_steps": 2, "logging_steps": 1}
    path = write_recipe(folder, model={"max_position_embeddings": 64}, training=steps)
    recipe = yaml.safe_load(path.read_text())
    recipe |= {"output_dir": "run", "languages": ["en", "de"], "card": {"license": "apache-2.0", "dataset_name": "toy"}}
    recipe["data"] |= {"root": ".", "cache_dir": "cache", "max_length": 64}
    path.write_text(yaml.safe_dump(recipe))
    return folder
