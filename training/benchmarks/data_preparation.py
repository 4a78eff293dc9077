"""Preparation of training data: time and memory of each step, and the start of a training after it.

The made-up text has the words of the corpus in random order, one in fifty a compound of two, in sentences as long as
WMT's. *cores busy* is CPU seconds a second; memory is that of all processes together, without mapped files. The epoch
that a training is then started on, and whose batches are planned, takes the text `copies` times.

    python -m training.benchmarks.data_preparation --data path/to/multi30k
    python -m training.benchmarks.data_preparation --toy
"""

import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import yaml

from admin_nmt.data.arrow_cache import available_cores
from admin_nmt.data.batching import TokenBatchSampler
from admin_nmt.data.tokenized_pairs import pair_lengths
from admin_nmt.runs.preparation import Step, prepare
from admin_nmt.runs.recipe import load_recipe
from admin_nmt.runs.training_run import build_trainer, training_arguments
from admin_nmt.system.markdown import table_text
from admin_nmt.system.processes import start_processes
from training.benchmarks.common import LANGUAGES, Results, alone, corpus, cpu_seconds, lines, options

MAX_TOKENS, MAX_WORDS, CHUNK = 3584, 100, 10_000


def write_corpus(args: Namespace, folder: Path) -> None:
    """Sentences of log-normal length, 26 words in the mean, whose sides differ in length by some 15 %."""
    random, pairs = np.random.default_rng(0), args.pairs
    words = {side: np.array(" ".join(lines(args, side, "train")).split()) for side in LANGUAGES}
    with (folder / "train.en").open("w") as english, (folder / "train.de").open("w") as german:
        for start in range(0, pairs, CHUNK):
            size = min(CHUNK, pairs - start)
            lengths = random.lognormal(3.05, 0.65, size)
            for side, file, ratio in (("en", english, 1.0), ("de", german, random.normal(0.95, 0.15, size))):
                counts = np.clip(lengths * ratio, 1, MAX_WORDS).astype(int)
                file.writelines(f"{line}\n" for line in sentences(words[side], counts, random))


def sentences(words: np.ndarray, counts: np.ndarray, random: np.random.Generator) -> list[str]:
    """A sentence of each number of words."""
    drawn = words[random.integers(len(words), size=counts.sum())].astype(object)
    rare = random.random(len(drawn)) < 0.02
    drawn[rare] += words[random.integers(len(words), size=rare.sum())].astype(object)
    ends = counts.cumsum()
    return [" ".join(drawn[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def write_recipe(folder: Path, name: str, vocab_size: int, upsample: int) -> Path:
    """A recipe on the corpus, of a model so small that it takes no time."""
    model = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    model |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 256}
    train = {"source": str(folder / "train.en"), "target": str(folder / "train.de"), "upsample": upsample}
    recipe = {
        "output_dir": str(folder / "run"),
        "data": {"cache_dir": str(folder / "cache"), "train": train},
        "tokenizer": {"vocab_size": vocab_size},
        "model": model,
        "training": {"max_tokens": MAX_TOKENS, "max_steps": 1, "save_strategy": "no", "report_to": "none"},
    }
    (folder / name).write_text(yaml.safe_dump(recipe))
    return folder / name


def start_training(path: str) -> dict[str, float]:
    """Seconds from the launch of this process to its first update, and those of planning alone."""
    launch = psutil.Process().create_time()
    recipe = load_recipe(path)
    start_processes()
    times = {"imports": time.time() - launch}
    prepared = prepare(recipe)
    trainer = build_trainer(recipe, prepared, training_arguments(recipe))
    trainer.train()
    times["first update"] = time.time() - launch
    data, planned = prepared.data["train"], time.time()
    sampler = TokenBatchSampler(*pair_lengths(data), MAX_TOKENS, seed=0)
    return times | {"planning": time.time() - planned, "batches": len(sampler), "pairs": len(data)}


class Meter:
    """Times the steps of a preparation and watches the memory of all its processes.

    Attributes:
        steps: of each step `step`, `pairs`, `seconds`, `pairs_per_second`, and of all processes `cpu_seconds` and
            `peak_memory_gb`.
    """

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    @contextmanager
    def __call__(self, name: str) -> Iterator[Step]:
        step, samples, done = Step(name), [memory()], threading.Event()

        def sample() -> None:
            while not done.wait(0.2):
                samples.append(memory())

        sampler = threading.Thread(target=sample, daemon=True)
        sampler.start()
        start, used = time.perf_counter(), cpu_seconds()
        try:
            yield step
        finally:
            seconds = time.perf_counter() - start
            done.set()
            sampler.join()
        rates = {"seconds": seconds, "pairs_per_second": step.pairs / seconds, "cpu_seconds": cpu_seconds() - used}
        peak = {"peak_memory_gb": max(*samples, memory()) / 1e9}
        self.steps.append({"step": name, "pairs": step.pairs} | rates | peak)


def memory() -> int:
    """Bytes that this process and its children hold, a page that they share counted once, without mapped files."""
    process = psutil.Process()
    return sum(map(anonymous, [process.pid, *(child.pid for child in process.children(recursive=True))]))


def anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))
    except (OSError, StopIteration):  # the process has ended, or this is no Linux
        return 0


def measure(args: Namespace) -> dict[str, Any]:
    """Prepare a corpus with a cache of its own, then start a training on it in another process."""
    with TemporaryDirectory() as name:
        folder, meter = Path(name), Meter()
        write_corpus(args, folder)
        start_processes()
        prepare(load_recipe(write_recipe(folder, "prepare.yaml", args.vocab_size, 1)), args.num_proc, meter)
        text_size = sum((folder / f"train.{side}").stat().st_size for side in LANGUAGES)
        cache_size = sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file())
        start = alone(start_training, str(write_recipe(folder, "start.yaml", args.vocab_size, args.copies)))
    sizes = {"text_gb": text_size / 1e9, "cache_gb": cache_size / 1e9}
    return settings(args) | sizes | {"steps": meter.steps, "start": start}


def settings(args: Namespace) -> dict[str, int]:
    """Sizes on which the values depend."""
    return {name: vars(args)[name] for name in ("pairs", "copies", "vocab_size", "num_proc")}


def table(results: Results) -> str:
    """Each step, and the start of a training."""
    (value,) = (case["value"] for case in results.cases.values())
    total, start = sum(step["seconds"] for step in value["steps"]), value["start"]
    rows = [
        [
            step["step"], f"{step['seconds'] / total:.2f}", f"{step['seconds']:.1f}",
            f"{step['pairs_per_second']:,.0f}",
            f"{step['cpu_seconds'] / step['seconds']:.2f}", f"{step['peak_memory_gb']:.2f}",
        ]
        for step in value["steps"]
    ]  # fmt: skip
    head = ["step", "share of the time", "seconds", "pairs a second", "cores busy", "peak memory, GB"]
    imports, planning = (start[name] / start["first update"] for name in ("imports", "planning"))
    after = f"""{value["pairs"]:,} pairs are {value["text_gb"]:.2f} GB of text. A training on {start["pairs"]:,} pairs
(the same ones {value["copies"]} times) ends its first update {start["first update"]:.1f} s after the launch; imports
took {imports:.0%} of that, and planning {start["batches"]:,} batches {planning:.0%}."""
    return f"{table_text(head, rows)}\n\n{after}"


def main(arguments: list[str] | None = None) -> None:
    """Measure what is left, and print the table."""
    parser = options(__doc__)
    for name, default in {"pairs": 1_000_000, "copies": 36, "vocab_size": 32768, "num_proc": available_cores()}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=f"default: {default}")
    args = parser.parse_args(arguments)
    if args.toy:
        parser.set_defaults(pairs=200, copies=2, vocab_size=400, num_proc=1)
        args = parser.parse_args(arguments)
    results = Results.open(args, "data", {"corpus": corpus(args), "max_words": MAX_WORDS} | settings(args))
    results.measure("preparation", alone, measure, args)
    print(table(results))


if __name__ == "__main__":
    main()
