"""Preparation of training data, measured on made-up text: time and memory of each step, and the start after it.

The text has the words of Multi30k in random order, one in fifty a compound of two, in sentences as long as WMT's. The
epoch that a training is then started on, and whose batches are planned, takes it `copies` times. Smaller corpora, by
powers of ten, show what a pair costs in them; what the tokenizers library does alone shows what all the rest costs.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
import yaml
from transformers import PreTrainedTokenizerFast

from ..data.arrow_cache import BATCH, available_cores
from ..data.batching import TokenBatchSampler
from ..data.parallel_text import read_lines
from ..data.tokenizing import pair_lengths
from ..runs.building import build_trainer
from ..runs.preparation import Prepared, prepare
from ..runs.recipe import load_recipe
from ..system.processes import start_processes
from ..trainer.peak_memory import peak_memory
from .preparation_meter import Meter

LAUNCH = psutil.Process().create_time()  # when the interpreter started
LANGUAGES = ("en", "de")


@dataclass
class PreparationBenchmark:
    """What is measured.

    Args:
        data: folder of Multi30k: train.en.gz, train.de.gz.
        pairs: sentence pairs of the corpus.
        copies: how many times an epoch takes each of them.
        max_words: of the longest sentence.
        vocab_size: of the joint vocabulary.
        num_proc: worker processes.
    """

    data: str
    pairs: int = 1_000_000
    copies: int = 36
    max_words: int = 100
    vocab_size: int = 32768
    num_proc: int = field(default_factory=available_cores)


def write_corpus(args: PreparationBenchmark, folder: Path, chunk: int = 10_000) -> None:
    """Sentences of log-normal length, 26 words in the mean, whose sides differ in length by some 15 %."""
    random = np.random.default_rng(0)
    words = {side: np.array(" ".join(read_lines(Path(args.data) / f"train.{side}.gz")).split()) for side in LANGUAGES}
    with (folder / "train.en").open("w") as english, (folder / "train.de").open("w") as german:
        for start in range(0, args.pairs, chunk):
            size = min(chunk, args.pairs - start)
            lengths = random.lognormal(3.05, 0.65, size)
            for side, file, ratio in (("en", english, 1.0), ("de", german, random.normal(0.95, 0.15, size))):
                counts = np.clip(lengths * ratio, 1, args.max_words).astype(int)
                file.writelines(f"{line}\n" for line in sentences(words[side], counts, random))


def sentences(words: np.ndarray, counts: np.ndarray, random: np.random.Generator) -> list[str]:
    """A sentence of each number of words."""
    drawn = words[random.integers(len(words), size=counts.sum())].astype(object)
    rare = random.random(len(drawn)) < 0.02
    drawn[rare] += words[random.integers(len(words), size=rare.sum())].astype(object)
    ends = counts.cumsum()
    return [" ".join(drawn[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def recipe_of(args: PreparationBenchmark, folder: Path, upsample: int) -> dict[str, Any]:
    """A recipe on the corpus, of a model so small that it takes no time."""
    small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    return {
        "output_dir": str(folder / "run"),
        "data": {
            "cache_dir": str(folder / "cache"),
            "train": {"source": str(folder / "train.en"), "target": str(folder / "train.de"), "upsample": upsample},
        },
        "tokenizer": {"vocab_size": args.vocab_size},
        "model": small | {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 256},
        "training": {"max_tokens": 3584, "max_steps": 1, "save_strategy": "no", "report_to": "none"},
    }


def start_training(path: str) -> dict[str, float]:
    """Seconds from the launch of this process to its first update, those of planning alone, and peak memory."""
    recipe = load_recipe(path)
    start_processes()
    times = {"imports": time.time() - LAUNCH}
    prepared = prepare(recipe)
    times["prepare"] = time.time() - LAUNCH
    trainer = build_trainer(recipe, prepared)
    times["trainer"] = time.time() - LAUNCH
    trainer.train()
    times |= {"first update": time.time() - LAUNCH, "cpu": time.process_time()}
    del trainer
    data = prepared.data["train"]
    planned, used = time.time(), time.process_time()
    sampler = TokenBatchSampler(*pair_lengths(data), 3584, seed=0)
    times |= {"planning": time.time() - planned, "planning cpu": time.process_time() - used}
    return times | {
        "batches": len(sampler),
        "pairs": len(data),
        "peak_memory_gb": peak_memory(torch.device("cpu")) / 1e9,
    }


def tokenizers_alone(folder: Path, tokenizer: PreTrainedTokenizerFast, pairs: int) -> dict[str, float]:
    """What the tokenizers library does on all cores with the text of some pairs, each of which it sees as a whole."""
    sides = [list(islice(read_lines(folder / f"train.{side}"), pairs)) for side in LANGUAGES]
    start, used = time.perf_counter(), time.process_time()
    for lines in sides:
        for first in range(0, len(lines), BATCH):
            encodings = tokenizer.backend_tokenizer.encode_batch_fast(lines[first : first + BATCH])
            _ = [encoding.ids for encoding in encodings]
    seconds = time.perf_counter() - start
    rate = len(sides[0]) / seconds
    return {"pairs": len(sides[0]), "pairs_per_second": rate, "cpu_seconds": time.process_time() - used}


def sizes(pairs: int, smallest: int = 10_000) -> list[int]:
    """The powers of ten from the smallest on that are less than a number of pairs, and the number."""
    return [*takewhile(lambda size: size < pairs, (smallest * 10**power for power in range(9))), pairs]


def measure_preparation(args: PreparationBenchmark, folder: Path) -> tuple[dict[str, Any], Prepared]:
    """Write the corpus and prepare it, with a cache of its own."""
    write_corpus(args, folder)
    text = sum((folder / f"train.{side}").stat().st_size for side in LANGUAGES)
    (folder / "prepare.yaml").write_text(yaml.safe_dump(recipe_of(args, folder, 1)))
    meter, start = Meter(), time.perf_counter()
    prepared = prepare(load_recipe(folder / "prepare.yaml"), args.num_proc, meter)
    seconds = time.perf_counter() - start
    cache = sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file())
    total = {"pairs": args.pairs, "seconds": seconds, "pairs_per_second": args.pairs / seconds}
    total |= {"cpu_seconds": sum(step["cpu_seconds"] for step in meter.steps)}
    total |= {"peak_memory_gb": max(step["peak_memory_gb"] for step in meter.steps)}
    return {"text_gb": text / 1e9, "cache_gb": cache / 1e9, "steps": meter.steps, "total": total}, prepared


def measure(args: PreparationBenchmark) -> dict[str, Any]:
    """Prepare the corpus and smaller ones, then start a training on it in a process of its own."""
    load, totals = os.getloadavg()[0], []
    start_processes()
    for pairs in sizes(args.pairs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            measured, prepared = measure_preparation(replace(args, pairs=pairs), folder)
            totals.append(measured["total"])
            if pairs < args.pairs:
                continue
            alone = tokenizers_alone(folder, prepared.source_tokenizer, min(pairs, 50_000))
            (folder / "start.yaml").write_text(yaml.safe_dump(recipe_of(args, folder, args.copies)))
            command = [sys.executable, "-m", __name__, str(folder / "start.yaml")]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            start = json.loads(output.splitlines()[-1])
    facts = {name: value for name, value in asdict(args).items() if name != "data"}
    facts |= {"cores": available_cores(), "load": load}
    return facts | measured | {"sizes": totals, "tokenizers": alone, "start": start}


if __name__ == "__main__":
    print(json.dumps(start_training(sys.argv[1])))
