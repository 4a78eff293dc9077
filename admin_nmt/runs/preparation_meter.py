"""Time and memory of the steps that prepare the data of a recipe."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from ..system.processes import print_once
from .preparation import Step


class Meter:
    """Times the steps of a preparation and watches its memory, on Linux without the pages of mapped files.

    Attributes:
        steps: of each step `step`, `pairs`, `seconds`, `pairs_per_second`, and of all processes `cpu_seconds` and
            `peak_memory_gb`.
    """

    def __init__(self, interval: float = 0.2) -> None:
        self.steps: list[dict[str, Any]] = []
        self.interval = interval

    @contextmanager
    def __call__(self, name: str) -> Iterator[Step]:
        step, peak, done = Step(name), [memory()], threading.Event()

        def sample() -> None:
            while not done.wait(self.interval):
                peak[0] = max(peak[0], memory())

        sampler = threading.Thread(target=sample, daemon=True)
        sampler.start()
        start, used = time.perf_counter(), cpu_seconds()
        try:
            yield step
        finally:
            seconds = time.perf_counter() - start
            done.set()
            sampler.join()
        rate = step.pairs / seconds
        peak_gb = max(peak[0], memory()) / 1e9
        self.steps.append(
            {"step": name, "pairs": step.pairs, "seconds": seconds, "pairs_per_second": rate}
            | {"cpu_seconds": cpu_seconds() - used, "peak_memory_gb": peak_gb}
        )
        print_once(
            f"{name}: {step.pairs:,} pairs in {seconds:.1f} s, {rate:,.0f} a second, peak memory {peak_gb:.2f} GB"
        )


def cpu_seconds() -> float:
    """Seconds of this process and of the children that have ended."""
    return sum(os.times()[:4])


def memory() -> int:
    """Bytes that this process and its children hold, a page that they share counted once."""
    process = psutil.Process()
    return sum(map(_anonymous, [process.pid, *(child.pid for child in process.children(recursive=True))]))


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))
    except (OSError, StopIteration):  # not Linux, or an old one, or the process has ended
        with suppress(psutil.NoSuchProcess):
            return int(psutil.Process(pid).memory_info().rss)
        return 0
