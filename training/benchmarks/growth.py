"""Growth of cost: training by depth, width, vocabulary and batch, planning of batches by the number of pairs.

Training: updates of `AdminTrainer` after a first one, ADMIN with the closed form of ω, Adam, sentences of 16 tokens,
precision and attention as the package chooses. One size grows at a time from 6-6 layers, width 256, 8,000 words and
2,048 tokens a batch. The range is that over the rounds, each relative to its own smallest point. The ideal is that time
grows with the floating-point operations of the model's matrix products, from the smallest point on; for the batch, that
tokens a second stay those of the smallest. A point above it uses the processor better than the smallest does.

Planning: the batches of an epoch, their lengths drawn from those of the corpus, planned and not trained. The ideal
is that time and memory grow with the pairs, at the rate of a million. A billion pairs take 4 GB of disk meanwhile.

    python -m training.benchmarks.growth --data path/to/multi30k
    python -m training.benchmarks.growth --toy --rounds 1
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from datasets import Dataset

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from admin_nmt.data.batching import WINDOW, IntArray, Survey, TokenBatchSampler, WindowedBatchSampler
from admin_nmt.data.checksums import add_checksum, is_whole
from admin_nmt.data.cleaning import repeats
from admin_nmt.data.tokenization.byte_bpe import train_tokenizer
from admin_nmt.data.tokenized_pairs import WHOLE
from admin_nmt.model.sublayers import of_both_stacks
from admin_nmt.runs.preparation_meter import Meter, cpu_seconds, memory
from admin_nmt.system.markdown import table_text
from training.benchmarks.common import (
    LANGUAGES,
    Results,
    Section,
    Timing,
    alone,
    corpus,
    lines,
    options,
    spread,
    text_folder,
)  # fmt: skip
from training.benchmarks.flops import forward_flops

LENGTH = 16  # tokens of a sentence
PART = 1 << 22  # pairs that are drawn at a time
PAIRS = tuple(10**power for power in range(4, 10))
KEYS, FILE_SIZE = 10_000_000, 1 << 29  # among which duplicates are looked for; bytes of a file that is verified
MAX_TOKENS = 4096  # of a planned batch


@dataclass(frozen=True)
class Point:
    """A model, the token budget of its batches, and the tokens that are measured, in whole batches."""

    encoder_layers: int = 6
    decoder_layers: int = 6
    width: int = 256
    vocabulary: int = 8000
    batch: int = 2048
    tokens: int = 8192

    def config(self) -> AdminConfig:
        """ω has its closed form, which needs no profiling."""
        stacks = of_both_stacks(attention_heads=max(1, self.width // 64), ffn_dim=4 * self.width)
        layers = {"encoder_layers": self.encoder_layers, "decoder_layers": self.decoder_layers}
        others: dict[str, Any] = {"variant": "admin", "omega_rule": "log_n", "vocab_size": self.vocabulary}
        return AdminConfig(**stacks, **layers, **others, d_model=self.width, dropout=0.1, max_position_embeddings=64)

    @property
    def updates(self) -> int:
        """Number of measured updates."""
        return max(1, self.tokens // self.batch)


POINT, LONG, TINY = Point(), Point(tokens=16384), Point(1, 1, 16, 100, 64, 64)
AXES: dict[str, dict[str, Any]] = {  # with the ideal by floating-point operations, or that the speed stays
    "depth": {"field": "encoder_layers", "values": (6, 12, 24, 36, 60), "label": "encoder layers (6 decoder layers)"},
    "width": {"field": "width", "values": (128, 256, 384, 512), "label": "width of the model"},
    "vocabulary": {
        "field": "vocabulary",
        "values": (8000, 16000, 24000, 32000, 40000),
        "label": "words of the vocabulary",
    },
    "batch": {"field": "batch", "values": (512, 1024, 2048, 4096, 8192, 16384), "label": "tokens of a batch"},
}
TOY = {"depth": AXES["depth"] | {"values": (1, 2)}, "batch": AXES["batch"] | {"values": (32, 64)}}


class TimedTrainer(Timing, AdminTrainer):
    """A trainer with a stopwatch."""


def measure_point(point: Point, seed: int) -> dict[str, Any]:
    """Target tokens a second after a first update, and the precision and attention that were chosen."""
    random, config = np.random.default_rng(seed), point.config()
    count = (1 + point.updates) * (point.batch // LENGTH)
    sides = {name: random.integers(3, point.vocabulary - 1, (count, LENGTH)) for name in ("input_ids", "labels")}
    for ids in sides.values():
        ids[:, -1] = 0  # </s>
    lengths = dict.fromkeys(("source_length", "target_length"), [LENGTH] * count)
    pairs = Dataset.from_dict({name: ids.tolist() for name, ids in sides.items()} | lengths)
    with TemporaryDirectory() as folder:
        args = AdminTrainingArguments(
            folder, optimizer="adam", max_tokens=point.batch, max_steps=1 + point.updates, seed=seed,
            disable_tqdm=True, save_strategy="no", logging_strategy="no", report_to="none",
        )  # fmt: skip
        trainer = TimedTrainer(AdminForConditionalGeneration(config), args, train_dataset=pairs)
        watch = trainer.time_training(warm_up=1)
    attention = trainer.model.config._attn_implementation
    precision = ", then ".join(trainer.precisions)
    return {"tokens_per_second": watch.tokens / watch.seconds, "precision": precision, "attention": attention}


def measure_points(points: Sequence[Point], seed: int) -> list[dict[str, Any]]:
    """One after the other in one process."""
    return [measure_point(point, seed) for point in points]


def measure_axis(axis: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """All points of an axis; every other round from the largest, so that what else happens makes no trend."""
    points = [replace(Point(**axis["base"]), **{axis["field"]: value}) for value in axis["values"]]
    order = 1 if number % 2 == 0 else -1
    found = alone(measure_points, points[::order], number)[::order]
    flops = [forward_flops(point.config(), 1, LENGTH, LENGTH) for point in points]
    ideal = [flops[0] / own if axis["by_flops"] else 1.0 for own in flops]
    return [asdict(point) | row | {"ideal": best} for point, row, best in zip(points, found, ideal, strict=True)]


def corpus_lengths(text: Path, vocab_size: int) -> IntArray:
    """Tokens of source and target of the corpus's first pairs, [pairs, 2]; those over 256 are left out."""
    texts = [lines(text, side, "train", count=100_000) for side in LANGUAGES]
    tokenizer = train_tokenizer((line for side in texts for line in side), vocab_size)
    sides = [[len(ids) for ids in tokenizer(side, verbose=False)["input_ids"]] for side in texts]
    lengths = np.array(sides, dtype=np.uint16).T
    return lengths[lengths.max(axis=1) <= 256]


def measure_planning(text: Path, sizes: Sequence[int], vocab_size: int) -> dict[str, Any]:
    """Plans of all sizes as a training makes them, the search for duplicates, and the check of a file's sum."""
    plans, lengths = [], corpus_lengths(text, vocab_size)
    with TemporaryDirectory() as name:
        for pairs in sizes:
            drawn = np.memmap(path := Path(name) / "lengths", dtype=np.uint16, mode="w+", shape=(2, pairs))
            for number, start in enumerate(range(0, pairs, PART)):
                size = min(PART, pairs - start)
                chosen = np.random.default_rng((0, number)).integers(len(lengths), size=size)
                drawn[:, start : start + size] = lengths[chosen].T
            drawn.flush()
            plans.append(alone(plan, str(path), pairs))
        (file := Path(name) / "file").write_bytes(bytes(min(FILE_SIZE, 100 * sizes[-1])))
        add_checksum(file)
        used, size = cpu_seconds(), file.stat().st_size
        is_whole(file)
        checksum = {"gb": size / 1e9, "cpu_seconds": cpu_seconds() - used}
    duplicates = alone(find_duplicates, min(KEYS, sizes[-1]))
    return {"max_tokens": MAX_TOKENS, "growth": plans, "duplicates": duplicates, "checksum": checksum}


@contextmanager
def metered(pairs: int) -> Iterator[dict[str, Any]]:
    """Time, CPU time, and the growth of memory meanwhile, which are there when the block has ended."""
    meter, before, found = Meter(0.05), memory(), {"pairs": pairs}
    with meter("planning") as step:
        step.pairs = pairs
        yield found
    (one,) = meter.steps
    found |= {"seconds": one["seconds"], "cpu_seconds": one["cpu_seconds"]}
    found["peak_mb"] = 1000 * one["peak_memory_gb"] - before / 1e6


def plan(path: str, pairs: int) -> dict[str, Any]:
    """Time, memory and padding of a plan: at once, or in windows where a training makes it so."""
    lengths = np.memmap(path, dtype=np.uint16, mode="r", shape=(2, pairs))
    window = 0 if pairs <= WHOLE else WINDOW
    with metered(pairs) as found:
        if window:
            take = lambda start, stop: (lengths[0, start:stop], lengths[1, start:stop])  # noqa: E731
            survey = WindowedBatchSampler(pairs, take, MAX_TOKENS, seed=0, window=window).survey
        else:
            source, target = lengths.astype(np.int32)
            batches = TokenBatchSampler(source, target, MAX_TOKENS, seed=0).batches
    if not window:
        survey = Survey.of(source, target, batches)
    tokens = survey.source_tokens + survey.target_tokens
    return found | {"window": window, "batches": survey.batches, "padding": survey.padding, "tokens": tokens}


def find_duplicates(pairs: int) -> dict[str, Any]:
    """Time and memory of looking for duplicates among random keys, as the cleaning does."""
    with metered(pairs) as found:
        verdicts, keys = np.zeros(pairs, np.uint8), np.random.default_rng(0).integers(1 << 62, size=pairs)
        repeats(keys, verdicts == 0)
    return found


def relative(rounds: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[float]]:
    """Speed of each point in each round, relative to the smallest point's of the same round."""
    speeds = [[row["tokens_per_second"] / rows[0]["tokens_per_second"] for row in rows] for rows in rounds]
    return [list(own) for own in zip(*speeds, strict=True)]


def reference(plans: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The plan nearest to a million pairs: smaller ones take hardly more than their start."""
    return min(plans, key=lambda row: abs(math.log(row["pairs"] / 1_000_000)))


def section(results: Results) -> Section:
    """A table of each size, beside the ideal."""
    parts, ratios = [], {}
    for name, rounds in results.rounds().items():
        head, rows, measured = planning_rows(rounds) if name == "pairs" else axis_rows(results.settings[name], rounds)
        parts.append(table_text(head, rows))
        ratios[f"growth, {name} {rows[0][0]} to {rows[-1][0]}: measured / ideal"] = measured
    return Section("Growth", "\n\n".join(parts), ratios)


def axis_rows(axis: Mapping[str, Any], rounds: Sequence[Any]) -> tuple[list[str], list[list[str]], str]:
    """Head and rows of the table of an axis, and what the largest reaches of the ideal."""
    rows = []
    for number, (size, own) in enumerate(zip(axis["values"], relative(rounds), strict=True)):
        row, speed = rounds[-1][number], median(points[number]["tokens_per_second"] for points in rounds)
        ideal = [f"{row['ideal']:.2f}", f"{median(own) / row['ideal']:.2f}"]
        rows.append([f"{size:,}", spread(own), *ideal, f"{speed:,.0f}", f"{row['precision']}, {row['attention']}"])
    head = [axis["label"], "speed, times the smallest's", "ideal", "measured / ideal", "target tokens a second"]
    return [*head, "precision, attention"], rows, rows[-1][3]


def planning_rows(rounds: Sequence[Any]) -> tuple[list[str], list[list[str]], str]:
    """Head and rows of the table of planning, and what the largest reaches of the ideal."""
    plans, rows = rounds[0]["growth"], []
    base = reference(plans)
    for row in plans:
        share = row["pairs"] / base["pairs"]
        speed = f"{base['seconds'] * share / row['seconds']:.2f}" if row["seconds"] else "–"
        held = f"{row['peak_mb'] / base['peak_mb'] / share:.2f}" if base["peak_mb"] else "–"
        rows.append([f"{row['pairs']:,}", speed, f"{row['seconds']:.2f}", held, f"{row['peak_mb']:,.0f}"])
    count = f"{base['pairs']:,}"
    head = [
        "pairs",
        f"pairs a second, times those of {count}",
        "seconds",
        f"memory a pair, times that of {count}",
        "MB",
    ]
    return head, rows, rows[-1][1]


def main(arguments: list[str] | None = None) -> None:
    """Measure what is left, and print the tables."""
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, help="folder of train.en.gz and train.de.gz; default: the phrasebook")
    args = parser.parse_args(arguments)
    axes, sizes, vocab_size = (dict(TOY), (100, 1000), 400) if args.toy else (dict(AXES), PAIRS, 32768)
    for name, axis in axes.items():
        base = TINY if args.toy else LONG if name == "batch" else POINT
        axes[name] = axis | {"base": asdict(base), "by_flops": name != "batch"}
    settings = axes | {"corpus": corpus(args)}
    results = Results.open(args, "growth", settings | {"pairs": {"values": sizes, "max_tokens": MAX_TOKENS}})
    for name, axis in axes.items():
        for number in range(args.rounds):
            results.measure(f"{name}, round {number + 1}", measure_axis, axis, number)
    with TemporaryDirectory() as folder:
        results.measure("pairs", measure_planning, text_folder(args, Path(folder)), sizes, vocab_size)
    print(section(results).text)


if __name__ == "__main__":
    main()
