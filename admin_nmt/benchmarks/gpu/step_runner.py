"""Runs named steps, each in a process of its own, until the minutes of a call are used up; the next call goes on.

A result is a file steps/NAME.json, which appears whole when the step has ended, well or not: a step that raises, dies
or takes too long leaves its error there, and the next one runs. One that was running when a call ended has no result
and runs again. While a step runs, the next process already imports the library, which takes seconds.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ...system.files import json_text, write_text_whole
from .gpu_setup import Setup

PATIENCE = 40.0  # seconds that a step gets to stop when it is asked to; a grid gives its runs 30
LEAST = 1.0  # seconds below which no step starts
RESULTS = "results.json"
WORKER = [sys.executable, "-m", f"{__package__}.step_worker"]


@dataclass(frozen=True)
class Step:
    """A step by its name.

    Args:
        name: of its result and its log.
        function: "module:function" beside this file; it takes a `Setup` and the arguments, and gives what JSON holds.
        arguments: of the function.
        estimate: seconds that it takes; it does not start where less is left, except as the first of a call.
        limit: seconds after which it is stopped.
        on_cpu: needs no GPU, so it can be done beforehand.
        resumes: goes on where it was stopped, so it may take several calls.
        leaves: a path below the output folder, without which the step is done again: the results may have come alone
            from another machine.
    """

    name: str
    function: str
    arguments: dict[str, Any] = field(default_factory=dict)
    estimate: float = 20.0
    limit: float = 120.0
    on_cpu: bool = False
    resumes: bool = False
    leaves: str | None = None


class Worker:
    """A process that imports the library and then waits for a step."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        with log_file(setup, "start").open("w") as log:
            self.process = subprocess.Popen(
                WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )

    def begin(self, step: Step, facts: dict[str, Any]) -> None:
        """Have it do a step; `facts` are what its result says besides.

        Raises:
            RuntimeError: it has not started, so no step would.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        if not self.process.stdout.readline():
            raise RuntimeError(f"the process of a step did not start: {last_line(log_file(self.setup, 'start'))}")
        places: dict[str, Any] = {"output": str(self.setup.output), "grid": str(self.setup.grid)}
        places |= {"data": None if self.setup.data is None else str(self.setup.data), "toy": self.setup.toy}
        self.process.stdin.write(json.dumps({"step": asdict(step), "setup": places, "facts": facts}) + "\n")
        self.process.stdin.close()

    def wait(self, seconds: float) -> int | None:
        """Its exit code, None if it still runs after so many seconds."""
        try:
            return self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Ask it and what it started to stop, then kill them; nothing happens where all have ended."""
        for sent in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sent)
            except ProcessLookupError:
                return
            self.wait(PATIENCE)


def result_file(setup: Setup, name: str) -> Path:
    """Where a step's result is."""
    return setup.output / "steps" / f"{name}.json"


def log_file(setup: Setup, name: str) -> Path:
    """Where a step's output is."""
    return setup.output / "logs" / f"{name}.log"


def read_results(setup: Setup) -> dict[str, dict[str, Any]]:
    """All results by their step's name, those of results.json too, which may have come alone from another machine."""
    together = setup.output / RESULTS
    found = json.loads(together.read_text(encoding="utf-8")) if together.is_file() else {}
    for path in sorted((setup.output / "steps").glob("*.json")):
        found[path.stem] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_result(setup: Setup, step: Step, status: str, facts: dict[str, Any]) -> None:
    """Leave a step's result, in one piece."""
    result = {"status": status, "function": step.function, "arguments": step.arguments, "toy": setup.toy} | facts
    write_text_whole(result_file(setup, step.name), json_text(result, indent=1) + "\n")


def last_line(path: Path) -> str:
    """Of a log: usually the error."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def check_size(setup: Setup) -> None:
    """Whether the results that are there are of this size.

    Raises:
        ValueError: a trial at toy size and a measurement would be mixed.
    """
    if any(result["toy"] != setup.toy for result in read_results(setup).values()):
        other = "without --toy" if setup.toy else "of --toy"
        raise ValueError(f"{setup.output / RESULTS}: holds results {other}; choose another --output")


def forget(setup: Setup, names: Sequence[str]) -> None:
    """Remove the results of these steps, so that they run again.

    Args:
        names: of steps; "failed" is every one that failed.

    Raises:
        ValueError: there is no such result.
    """
    results = read_results(setup)
    failed = {name for name, result in results.items() if result["status"] == "failed"}
    chosen = set(names) - {"failed"} | (failed if "failed" in names else set())
    if unknown := chosen - set(results):
        raise ValueError(f"--redo {min(unknown)}: there is no such result; {setup.output / RESULTS} has the names")
    for name in chosen:
        del results[name]
        result_file(setup, name).unlink(missing_ok=True)
    write_text_whole(setup.output / RESULTS, json_text(results, indent=1) + "\n")


class Call:
    """One call: runs what is left of the steps for so many seconds.

    Args:
        setup: what they work on.
        steps: all of them, in their order.
        seconds: of this call.
    """

    def __init__(self, setup: Setup, steps: Sequence[Step], seconds: float) -> None:
        self.setup, self.steps = setup, steps
        self.end = time.monotonic() + seconds
        self.running: Worker | None = None
        self.spare: Worker | None = None
        for folder in ("steps", "logs"):
            (setup.output / folder).mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> float:
        """Seconds of this call."""
        return self.end - time.monotonic()

    def pending(self) -> list[Step]:
        """Steps without a result, or without what they left beside it."""
        results = read_results(self.setup)
        return [step for step in self.steps if step.name not in results or self._is_gone(step, results[step.name])]

    def _is_gone(self, step: Step, result: dict[str, Any]) -> bool:
        left = step.leaves is not None and result["status"] == "done"
        return left and not (self.setup.output / str(step.leaves)).exists()

    def run(self) -> list[Step]:
        """Run until nothing is left or nothing fits; gives the steps that are left.

        Raises:
            ValueError: another call works on the same folder.
            RuntimeError: the process of a step does not start.
        """
        try:
            with FileLock(self.setup.output / "lock", blocking=False):
                return self._run()
        except Timeout as error:
            raise ValueError(
                f"{self.setup.output}: another call runs there; wait, or choose another --output"
            ) from error

    def _run(self) -> list[Step]:
        facts, first = machine_facts(), True
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # or the processes of the steps would run on
        try:
            for step in self._fitting():
                self.running, self.spare = self.spare or Worker(self.setup), None
                self.running.begin(step, facts)
                if len(self.pending()) > 1:
                    self.spare = Worker(self.setup)
                self._finish(step, self.running, first)
                first = False
        finally:
            for worker in (self.running, self.spare):
                if worker is not None:
                    worker.stop()
        return self.pending()

    def _fitting(self) -> Iterator[Step]:
        """Each pending step that fits into the time left when its turn comes; the first one fits anyway."""
        for number, step in enumerate(self.pending()):
            if self.left > (LEAST if number == 0 else step.estimate):
                yield step

    def _finish(self, step: Step, worker: Worker, first: bool) -> None:
        """Wait for a step; a result is left unless the end of the call, not its own limit, stopped it."""
        start, left = time.monotonic(), self.left
        say(f"{step.name} …")
        code = worker.wait(min(step.limit, left))
        worker.stop()
        seconds = time.monotonic() - start
        if result_file(self.setup, step.name).is_file():
            result = read_results(self.setup)[step.name]
            told = result["error"] if result["status"] == "failed" else "done"
        elif code is not None:
            told = f"ended with exit code {code}: {last_line(log_file(self.setup, step.name))}"
            write_result(self.setup, step, "failed", {"seconds": seconds, "error": told})
        elif step.limit <= left or (first and not step.resumes):
            told = f"stopped after {min(step.limit, left):.0f} s"
            write_result(self.setup, step, "failed", {"seconds": seconds, "error": told})
        else:
            told = "stopped with this call, goes on in the next"
        say(f"{step.name}: {told} ({seconds:.0f} s)")


def machine_facts() -> dict[str, Any]:
    """The driver of the GPU, None where there is none; the process of a step adds the rest."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {"driver": None}
    return {"driver": output.split("\n")[0].strip()}


def say(message: str) -> None:
    """A line about the progress."""
    print(message, file=sys.stderr, flush=True)
