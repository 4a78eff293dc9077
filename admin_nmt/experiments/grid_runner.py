"""Runs the runs of a grid, each in a process of its own with its output in OUTPUT_DIR/SYSTEM-seedK/train.log."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from ..data.arrow_cache import available_cores
from ..metrics.unigram import write_unigram
from ..runs.preparation import prepare
from .grids import Grid, Run
from .tables import outcome, write_tables

PATIENCE = 30.0  # seconds that interrupted runs get to stop


def say(message: str) -> None:
    """Print a line on stderr."""
    print(message, file=sys.stderr, flush=True)


def last_line(run: Run) -> str:
    """Last line of the run's log: usually its error."""
    lines = (run.folder / "train.log").read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "no output")


def start(run: Run, launch: list[str], threads: int) -> psutil.Popen:
    """The process of a run, in a group of its own, so that only this process interrupts it."""
    run.folder.mkdir(parents=True, exist_ok=True)
    command = [*launch, "-m", "admin_nmt", "train", str(run.grid.recipe), *run.arguments]
    environment = {"OMP_NUM_THREADS": str(threads)} | os.environ  # what the user has set stays
    with (run.folder / "train.log").open("a", encoding="utf-8") as log:
        return psutil.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


@contextmanager
def interruptible(running: dict[str, tuple[psutil.Popen, Run]]) -> Iterator[None]:
    """Stops what is running when this block is left by an interrupt, a closed terminal or an error."""
    signals = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    previous = [signal.signal(number, signal.default_int_handler) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, previous, strict=True):
            signal.signal(number, handler)
        stop([process for process, _ in running.values()])


def stop(processes: list[psutil.Popen]) -> None:
    """Have runs save a checkpoint and stop; kill those that do not, and their children."""
    families = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            families += process.children(recursive=True)
            process.terminate()
    psutil.wait_procs(processes, timeout=PATIENCE)
    for process in (*processes, *families):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs([*processes, *families], timeout=PATIENCE)


def run_grid(
    grid: Grid,
    systems: Sequence[str],
    seeds: Sequence[int],
    jobs: int,
    launch: list[str],
    tables_alone: bool = False,
) -> tuple[str, bool]:
    """Run what has not ended of a grid, and write its tables; see [`run_all`].

    Args:
        systems, seeds: those that run; empty for all.
        tables_alone: write the tables of what has ended, and run nothing.

    Returns:
        The table, and whether all runs have ended.
    """
    wanted = wanted_runs(grid, systems, seeds)
    ended_before = {run.name for run in grid.runs() if run.results() is not None}  # refuses those of other settings
    pending = [run for run in wanted if run.name not in ended_before]

    def ended(run: Run) -> str:
        write_tables(grid)
        return outcome(run.results())

    if tables_alone or not pending:
        return write_tables(grid), True
    prepared = [prepare(recipe) for recipe in grid.texts(pending)]  # the caches, before several runs want them
    write_unigram(prepared[0].data, len(prepared[0].target_tokenizer), grid.output_dir)
    run_all(pending, jobs, launch, ended)
    return write_tables(grid), all(run.results() is not None for run in pending)


def wanted_runs(grid: Grid, systems: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """The runs of these systems and seeds, of all where none are named; `grid` then shows these seeds too.

    Raises:
        ValueError: the grid has no such system.
    """
    if unknown := set(systems) - set(grid.systems):
        raise ValueError(f"--system {min(unknown)}: is not in the grid, which has {', '.join(grid.systems)}")
    chosen = list(seeds) or grid.seeds
    grid.seeds = sorted({*grid.seeds, *chosen})  # the tables show what has been run before
    return [run for run in grid.runs() if run.seed in chosen and (not systems or run.system in systems)]


def run_all(pending: list[Run], jobs: int, launch: list[str], outcome: Callable[[Run], str]) -> None:
    """Run what is pending, `jobs` at a time, each with its share of the cores unless OMP_NUM_THREADS is set.

    Args:
        launch: the command that starts Python on `-m admin_nmt train`.
        outcome: called when a run has ended with results, for a line about it.
    """
    threads = max(1, available_cores() // jobs)
    waiting, ended = list(pending), 0
    running: dict[str, tuple[psutil.Popen, Run]] = {}
    with interruptible(running):
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                running[run.name] = start(run, launch, threads), run
                say(f"{run.name}: started, see {run.folder / 'train.log'}")
            time.sleep(0.2)
            for name, (process, run) in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    ended += 1
                    failed = run.results() is None
                    end = f"failed (exit code {process.returncode}): {last_line(run)}" if failed else outcome(run)
                    say(f"[{ended}/{len(pending)}] {run.name}: {end}")
