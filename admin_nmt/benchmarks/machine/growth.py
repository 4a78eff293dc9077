"""How the cost of training grows with depth, width, vocabulary and batch: target tokens a second of AdminTrainer.

One thing grows at a time from a model of 6-6 layers, width 256, 8,000 words and 2,048 tokens a batch. All sentences
have 16 tokens, so that batches have one shape and no padding, and each point trains the same tokens. Precision and
attention are those that the package chooses. The ideal is what the speed would be if time grew with the floating-point
operations of the products of matrices, as `forward_flops` counts them, from the smallest point on; for the batch, if
tokens a second stayed as they are in the smallest one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from datasets import Dataset

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments

from ...model.sublayers import of_both_stacks
from ..gpu.flops import forward_flops
from ..processes import alone
from ..stopwatch import Stopwatch
from ..training_speed import chosen

LENGTH = 16  # tokens of a sentence


@dataclass(frozen=True)
class Point:
    """A model and its batches.

    Args:
        encoder_layers, decoder_layers, width, vocabulary: of the model; the feed-forward layers are four times as wide.
        batch: token budget.
        tokens: that are measured, in whole batches.
    """

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
        """That are measured."""
        return max(1, self.tokens // self.batch)

    def flops(self) -> float:
        """Of the products of a forward pass, a target token."""
        return forward_flops(self.config(), 1, LENGTH, LENGTH) / LENGTH


@dataclass(frozen=True)
class Axis:
    """What grows.

    Args:
        field: of `Point`.
        values: from the smallest to the largest.
        label: with its unit.
        base: what else the points have in common.
        by_flops: whether the ideal is by floating-point operations; else the speed stays.
    """

    field: str
    values: tuple[int, ...]
    label: str
    base: Point = Point()
    by_flops: bool = True

    def points(self) -> list[Point]:
        """From the smallest to the largest."""
        return [replace(self.base, **{self.field: value}) for value in self.values]

    def ideal(self) -> list[float]:
        """Of each point, relative to the smallest."""
        flops = [point.flops() for point in self.points()]
        return [flops[0] / own if self.by_flops else 1.0 for own in flops]


AXES = {
    "depth": Axis("encoder_layers", (6, 12, 24, 36, 60), "encoder layers (6 decoder layers)"),
    "width": Axis("width", (128, 256, 384, 512), "width of the model"),
    "vocabulary": Axis("vocabulary", (8000, 16000, 24000, 32000, 40000), "words of the vocabulary"),
    "batch": Axis(
        "batch", (512, 1024, 2048, 4096, 8192, 16384), "tokens of a batch", Point(tokens=16384), by_flops=False
    ),
}
TINY = Point(1, 1, 16, 100, 64, 64)
TOY = {
    "depth": Axis("encoder_layers", (1, 2), AXES["depth"].label, TINY),
    "width": Axis("width", (16, 32), AXES["width"].label, TINY),
    "vocabulary": Axis("vocabulary", (100, 200), AXES["vocabulary"].label, TINY),
    "batch": Axis("batch", (32, 64), AXES["batch"].label, TINY, by_flops=False),
}


def measure_point(point: Point, seed: int) -> dict[str, Any]:
    """Target tokens a second after a first update, and the precision and attention that were chosen."""
    with TemporaryDirectory() as folder:
        args = AdminTrainingArguments(
            folder, optimizer="adam", max_tokens=point.batch, max_steps=1 + point.updates, seed=seed,
            disable_tqdm=True, save_strategy="no", logging_strategy="no", report_to="none",
        )  # fmt: skip
        model = AdminForConditionalGeneration(point.config())
        trainer = AdminTrainer(model, args, train_dataset=pairs(point, seed))
        watch = Stopwatch(trainer, warm_up=1)
        trainer.train()
    return {"tokens_per_second": watch.tokens / watch.seconds} | chosen(trainer)


def pairs(point: Point, seed: int) -> Dataset:
    """Random ids, enough for all updates."""
    count = (1 + point.updates) * (point.batch // LENGTH)
    random = np.random.default_rng(seed)
    end = int(point.config().eos_token_id or 0)  # type: ignore[arg-type]
    sides = {name: random.integers(3, point.vocabulary - 1, (count, LENGTH)) for name in ("input_ids", "labels")}
    for ids in sides.values():
        ids[:, -1] = end
    lengths = dict.fromkeys(("source_length", "target_length"), [LENGTH] * count)
    return Dataset.from_dict({name: ids.tolist() for name, ids in sides.items()} | lengths)


def measure_points(points: Sequence[Point], seed: int) -> list[dict[str, Any]]:
    """One after the other in one process."""
    return [measure_point(point, seed) for point in points]


def measure_axis(axis: Axis, number: int) -> list[dict[str, Any]]:
    """All points of an axis; every other round from the largest, so that what else happens makes no trend."""
    step = 1 if number % 2 == 0 else -1
    found: list[dict[str, Any]] = alone(measure_points, axis.points()[::step], number)
    rows = [asdict(point) | row for point, row in zip(axis.points(), found[::step], strict=True)]
    return [row | {"ideal": ideal} for row, ideal in zip(rows, axis.ideal(), strict=True)]


def relative(rounds: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[float]]:
    """Of each point and round the speed relative to the smallest point's of the same round."""
    speeds = [[row["tokens_per_second"] / rows[0]["tokens_per_second"] for row in rows] for rows in rounds]
    return [list(own) for own in zip(*speeds, strict=True)]
