"""Time and memory of planning the batches of an epoch, by the number of pairs, and padding by the size of a window.

The lengths are drawn from those of a real corpus and lie in a file of 16 bits each: a billion pairs take 4 GB of disk.
Each plan is made in a process of its own.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ..data.batching import WINDOW, IntArray, Survey, TokenBatchSampler, WindowedBatchSampler
from ..data.checksums import add_checksum, is_whole
from ..data.cleaning import repeats
from ..data.parallel_text import read_lines
from ..data.tokenization.byte_bpe import train_tokenizer
from ..data.tokenizing import WHOLE
from ..system.files import json_text
from .preparation_meter import cpu_seconds

PART = 1 << 22  # pairs that are drawn at a time
MEASURED = 10_000_000  # pairs of which windows of several sizes are made


@dataclass
class PlanningBenchmark:
    """What is measured.

    Args:
        data: folder of a corpus, such as msdocs: train.en.gz, train.de.gz.
        pairs: sizes of the corpora that are planned.
        windows: sizes of a window that are compared on the corpus of [`MEASURED`] pairs; 0 plans it at once.
        max_tokens: budget of a batch.
        vocab_size: of the vocabulary whose tokens are counted.
        sample: pairs of the corpus of which the lengths are drawn.
        folder: where the lengths lie meanwhile; None for the system's temporary folder.
    """

    data: str
    pairs: Sequence[int] = tuple(10**power for power in range(4, 10))
    windows: Sequence[int] = (0, 1 << 24, 1 << 22, 1 << 20, 1 << 18, 1 << 16)
    max_tokens: int = 4096
    vocab_size: int = 32768
    sample: int = 100_000
    folder: str | None = field(default=None)


def corpus_lengths(args: PlanningBenchmark) -> IntArray:
    """Tokens of source and target of the corpus's first pairs, [pairs, 2]; those over 256 are left out."""
    texts = [list(islice(read_lines(Path(args.data) / f"train.{side}.gz"), args.sample)) for side in ("en", "de")]
    tokenizer = train_tokenizer((line for text in texts for line in text), args.vocab_size)
    sides = [[len(ids) for ids in tokenizer(text, verbose=False)["input_ids"]] for text in texts]
    lengths = np.array(sides, dtype=np.uint16).T
    return lengths[lengths.max(axis=1) <= 256]


def write_lengths(path: Path, lengths: IntArray, pairs: int) -> None:
    """So many pairs of lengths drawn from these, all sources and then all targets."""
    file = np.memmap(path, dtype=np.uint16, mode="w+", shape=(2, pairs))
    for number, start in enumerate(range(0, pairs, PART)):
        stop = min(start + PART, pairs)
        file[:, start:stop] = lengths[np.random.default_rng((0, number)).integers(len(lengths), size=stop - start)].T
    file.flush()


def own_memory() -> int:
    """Bytes that this process holds, on Linux without the pages of mapped files; it takes no time, however many."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
    except (OSError, StopIteration):
        return int(psutil.Process().memory_info().rss)


class PeakMemory(threading.Thread):
    """The most bytes that this process held between start and `mb()`, above those at the start; mapped files apart."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = self.peak = own_memory()
        self.done = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.done.wait(0.02):
            self.peak = max(self.peak, own_memory())

    def mb(self) -> float:
        """In 10⁶ bytes."""
        self.done.set()
        self.join()
        return (max(self.peak, own_memory()) - self.before) / 1e6


def plan(path: str, pairs: int, max_tokens: int, window: int) -> dict[str, Any]:
    """Time, memory and padding of a plan in windows, or at once where `window` is 0."""
    lengths = np.memmap(path, dtype=np.uint16, mode="r", shape=(2, pairs))
    peak, start, used = PeakMemory(), time.perf_counter(), cpu_seconds()
    if window:
        windowed = WindowedBatchSampler(
            pairs,
            lambda start, stop: (lengths[0, start:stop], lengths[1, start:stop]),
            max_tokens,
            seed=0,
            window=window,
        )
        survey = windowed.survey
    else:
        source, target = lengths.astype(np.int32)
        batches = TokenBatchSampler(source, target, max_tokens, seed=0).batches
    times = {"seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds() - used, "peak_mb": peak.mb()}
    if not window:
        survey = Survey.of(source, target, batches)
    facts = {
        "batches": survey.batches,
        "padding": survey.padding,
        "tokens": survey.source_tokens + survey.target_tokens,
    }
    return {"pairs": pairs, "window": window} | times | facts


def measure(args: PlanningBenchmark) -> dict[str, Any]:
    """Plans of all sizes as a training makes them, and of one size in windows of several sizes."""
    growth, windows = [], []
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        lengths, path = corpus_lengths(args), Path(name) / "lengths"
        for pairs in sorted({*args.pairs, *([MEASURED] if args.windows else [])}):
            write_lengths(path, lengths, pairs)
            if pairs in args.pairs:
                growth.append(_apart(path, pairs, args.max_tokens, 0 if pairs <= WHOLE else WINDOW))
            if pairs == MEASURED:
                windows = [_apart(path, pairs, args.max_tokens, window) for window in args.windows]
        checksum = _time_checksum(Path(name) / "sum")
    results = {"max_tokens": args.max_tokens, "load": os.getloadavg()[0], "growth": growth, "windows": windows}
    return results | {"duplicates": _apart(), "checksum": checksum}


def find_duplicates(pairs: int) -> dict[str, Any]:
    """Time and memory of looking for duplicates among random keys, as the cleaning does."""
    verdicts, keys = np.zeros(pairs, np.uint8), np.random.default_rng(0).integers(1 << 62, size=pairs)
    peak, start, used = PeakMemory(), time.perf_counter(), cpu_seconds()
    repeats(keys, verdicts == 0)
    times = {"seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds() - used}
    return {"pairs": pairs} | times | {"peak_mb": peak.mb() + (verdicts.nbytes + keys.nbytes) / 1e6}


def _time_checksum(path: Path, size: int = 1 << 29) -> dict[str, float]:
    """CPU seconds of verifying a file that was just written."""
    path.write_bytes(bytes(size))
    add_checksum(path)
    used = cpu_seconds()
    is_whole(path)
    return {"gb": size / 1e9, "cpu_seconds": cpu_seconds() - used}


def _apart(path: Path | None = None, *numbers: int) -> dict[str, Any]:
    """`plan` in a process of its own, or `find_duplicates` where there are no lengths."""
    command = [sys.executable, "-m", __name__, *([] if path is None else [str(path)]), *map(str, numbers)]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    if path is None:
        return result
    how = f"in windows of {result['window']:,}" if result["window"] else "at once"
    print(
        f"{result['pairs']:>13,} pairs {how}: "
        f"{result['seconds']:.2f} s, {result['peak_mb']:,.0f} MB, {result['padding']:.2%} padding",
        flush=True,
    )
    return result


def run_planning_benchmark(args: PlanningBenchmark, output: Path | None = None) -> dict[str, Any]:
    """Measure, and leave planning.json in a folder: `growth` has `pairs`, `seconds` and `peak_mb` of each size."""
    results = measure(args)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / "planning.json").write_text(json_text(results, indent=1) + "\n")
    return results


if __name__ == "__main__":
    print(json.dumps(plan(sys.argv[1], *map(int, sys.argv[2:])) if sys.argv[1:] else find_duplicates(MEASURED)))
