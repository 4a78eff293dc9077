"""Run a grid of recipes and seeds, and write its tables and plots.

    python training/experiment.py training/grids/multi30k-default-admin.yaml --data.root path/to/multi30k --jobs 2
    python training/experiment.py training/grids/multi30k-default-admin.yaml --tables
    python training/experiment.py GRID.yaml --training.max_steps 1000 \\
        --launch "accelerate launch --config_file training/accelerate/ddp.yaml --num_processes 8"

Every run is a process of its own, `train.py` with its output in OUTPUT_DIR/SYSTEM-seedK/train.log. The same command
goes on where an interrupted one stopped: runs that ended, also those that diverged, are left as they are, others
continue from their last checkpoint, and one that failed is tried again. --section.field value holds for all systems.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from admin_nmt.metrics.unigram import write_unigram
from admin_nmt.reports.tables import outcome, write_tables
from admin_nmt.runs.grids import Grid, Run, load_grid
from admin_nmt.runs.preparation import prepare
from cli import run as run_script

TRAIN = Path(__file__).with_name("train.py")
PATIENCE = 30.0  # seconds that interrupted runs get to stop


class Progress:
    """One line on stderr when a run starts and one when it ends."""

    def __init__(self, total: int) -> None:
        self.total, self.ended = total, 0

    def started(self, run: Run) -> None:
        print(f"{run.name}: started, see {run.folder / 'train.log'}", file=sys.stderr, flush=True)

    def end(self, run: Run, code: int) -> None:
        self.ended += 1
        results = run.results()
        told = outcome(results) if results is not None else f"failed (exit code {code}): {last_line(run)}"
        print(f"[{self.ended}/{self.total}] {run.name}: {told}", file=sys.stderr, flush=True)


def last_line(run: Run) -> str:
    """Of the run's log: usually its error."""
    lines = (run.folder / "train.log").read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "no output")


def start(run: Run, launch: list[str], threads: int) -> subprocess.Popen:
    """The process of a run, in a group of its own, so that only this script interrupts it."""
    run.folder.mkdir(parents=True, exist_ok=True)
    command = [*launch, str(TRAIN), str(run.grid.recipe), *run.arguments]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    with (run.folder / "train.log").open("a", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


@contextmanager
def interruptible(running: dict[str, tuple[subprocess.Popen, Run]]) -> Iterator[None]:
    """Stops what is running when this block is left by an interrupt, a closed terminal or an error."""
    signals = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    previous = [signal.signal(number, signal.default_int_handler) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, previous, strict=True):
            signal.signal(number, handler)
        stop([process for process, _ in running.values()])


def stop(processes: list[subprocess.Popen]) -> None:
    """Interrupt processes and their children; kill those that do not stop."""
    for sent in (signal.SIGINT, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, sent)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and any(process.poll() is None for process in processes):
            time.sleep(0.1)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(grid: Grid, pending: list[Run], jobs: int, launch: list[str]) -> None:
    """Run what is pending, `jobs` at a time; the tables are written anew whenever a run ends."""
    threads = max(1, cores() // jobs)
    waiting, progress = list(pending), Progress(len(pending))
    running: dict[str, tuple[subprocess.Popen, Run]] = {}
    with interruptible(running):
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                running[run.name] = start(run, launch, threads), run
                progress.started(run)
            time.sleep(0.2)
            for name, (process, run) in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    progress.end(run, process.returncode)
                    write_tables(grid)


def arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("grid", help="YAML file of the grid")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; each gets its share of the cores")
    parser.add_argument("--tables", action="store_true", help="only write the tables and plots of what is there")
    parser.add_argument("--systems", nargs="+", help="only these systems")
    parser.add_argument("--seeds", nargs="+", type=int, help="only these seeds, or others than the grid's")
    parser.add_argument("--launch", default=shlex.quote(sys.executable), help="what starts train.py")
    return parser.parse_known_args()


def main() -> None:
    args, overrides = arguments()
    grid = load_grid(args.grid, overrides)
    seeds = args.seeds or grid.seeds
    grid.seeds = sorted({*grid.seeds, *seeds})  # the tables show what has been run before
    unknown = set(args.systems or []) - set(grid.systems)
    if unknown or args.jobs < 1:
        raise ValueError(f"--systems {min(unknown)}: is not in {args.grid}" if unknown else "--jobs: give at least 1")
    wanted = [run for run in grid.runs() if run.seed in seeds and (not args.systems or run.system in args.systems)]
    pending = [run for run in wanted if run.results() is None]
    if pending and not args.tables:
        prepared = prepare(pending[0].recipe())  # and the caches, before several runs want them
        write_unigram(prepared.data, len(prepared.target_tokenizer), grid.output_dir)
        run_all(grid, pending, args.jobs, shlex.split(args.launch))
    print(write_tables(grid))
    if not args.tables and any(run.results() is None for run in pending):
        sys.exit("not all runs have ended; the same command tries again")


if __name__ == "__main__":
    run_script(main)
