"""Training throughput against stock Marian with the stock Seq2SeqTrainer, alternating in one run.

The same model (post-LN, label smoothing 0.1, dropout 0.1, Adam) and the same token ids: ours takes batches of a token
budget, stock takes as many pairs a batch as those hold on average, drawn at random or grouped by length. "ours" says
nothing about precision or attention, and gets what the package chooses. Counted are target tokens that are not padding,
a second, after a warm-up. Machines are shared and noisy: compare the ratios.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)
from transformers.trainer_pt_utils import get_length_grouped_indices

from admin_nmt import AdminTrainer

from ..data.batching import TokenBatchSampler
from ..data.tokenizing import pair_lengths
from ..model.sublayers import of_both_stacks
from ..runs.building import build_trainer
from ..runs.preparation import Prepared, prepare
from ..runs.recipe import Recipe
from .processes import alone
from .stopwatch import Stopwatch


@dataclass
class Shape:
    """Depth and width of a model, and a measurement of its training: `max_tokens` a batch, `updates` at most."""

    encoder_layers: int
    decoder_layers: int
    d_model: int
    ffn_dim: int
    heads: int
    updates: int
    max_tokens: int = 4096

    def fields(self) -> dict[str, int]:
        """Under the names that both configurations use."""
        both = of_both_stacks(ffn_dim=self.ffn_dim, attention_heads=self.heads)
        layers = {"encoder_layers": self.encoder_layers, "decoder_layers": self.decoder_layers}
        return both | layers | {"d_model": self.d_model, "max_position_embeddings": 512}


SHAPES = {
    "6-6": Shape(6, 6, 512, 2048, 8, 3, 2048),
    "4-4": Shape(4, 4, 128, 256, 4, 8),
    "30-6": Shape(30, 6, 256, 1024, 4, 2, 2048),
}
TOY = {"1-1": Shape(1, 1, 16, 32, 2, 1, 256)}
BASE = "stock grouped"  # what the others are compared with
SYSTEMS = ("ours", "ours float32", BASE, f"{BASE} bf16", "stock random")
ROUNDS = 3  # of the table; a system's batches differ between them


def systems(fast_bfloat16: bool) -> tuple[str, ...]:
    """Those that a machine measures: one that emulates bfloat16 leaves stock's out."""
    return tuple(name for name in SYSTEMS if fast_bfloat16 or not name.endswith("bf16"))


def warm_up() -> int:
    """Updates that are not counted: the first ones allocate memory, and on a GPU load kernels and choose algorithms."""
    return 10 if torch.cuda.is_available() else 1


@dataclass
class TrainingBenchmark:
    """What is measured.

    Args:
        data: folder of Multi30k: train.en.gz, train.de.gz.
        cache: folder of what is made of it.
        vocab_size: of the joint vocabulary.
        rounds: so many measurements of each system together take the batches of an epoch evenly.
    """

    data: str
    cache: str = "runs/cache"
    vocab_size: int = 8000
    rounds: int = ROUNDS


def common(folder: str, seed: int) -> dict[str, Any]:
    """Arguments of both trainers."""
    quiet = {"disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no", "report_to": "none"}
    return quiet | {"output_dir": folder, "learning_rate": 1e-4, "max_grad_norm": 0.0, "seed": seed}


def ours(
    shape: Shape, args: TrainingBenchmark, prepared: Prepared, folder: str, seed: int, **choices: Any
) -> AdminTrainer:
    """AdminTrainer on our post-LN model; `choices` are fields of training."""
    settings = common(folder, seed) | choices | {"optimizer": "adam", "max_tokens": shape.max_tokens}
    settings |= {"max_steps": shape.updates + warm_up()}
    model = shape.fields() | {"variant": "post_ln"}
    values = recipe(args) | {"output_dir": settings.pop("output_dir"), "model": model, "training": settings}
    return build_trainer(Recipe.model_validate(values), prepared)


def stock(
    shape: Shape, args: TrainingBenchmark, prepared: Prepared, folder: str, seed: int, grouped: bool, **choices: Any
) -> Seq2SeqTrainer:
    """Seq2SeqTrainer on MarianMTModel, on a sample of the batches that it would make of all the data."""
    tokenizer = prepared.source_tokenizer
    vocabulary = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "eos_token_id": 0}
    config = MarianConfig(**shape.fields(), **vocabulary, decoder_start_token_id=tokenizer.pad_token_id, dropout=0.1,
                          scale_embedding=True, activation_function="relu")  # fmt: skip
    model = MarianMTModel(config)
    data = prepared.data["train"].select_columns(["input_ids", "labels"])
    batches = stock_batches(prepared.data["train"], shape.max_tokens, seed, grouped)
    chosen = Random(seed).sample(batches, warm_up())
    count = shape.updates if grouped else max(1, shape.updates // 2)  # those at random are all alike, and slow
    chosen += evenly(batches, pair_lengths(prepared.data["train"]), count, (seed + 0.5) / args.rounds % 1)
    arguments = Seq2SeqTrainingArguments(
        **common(folder, seed),
        **choices,
        per_device_train_batch_size=len(batches[0]),
        num_train_epochs=1,
        label_smoothing_factor=0.1,
        train_sampling_strategy="sequential",
        use_cpu=not torch.accelerator.is_available(),
    )
    part = data.select([index for batch in chosen for index in batch])
    return Seq2SeqTrainer(model, arguments, train_dataset=part, data_collator=DataCollatorForSeq2Seq(tokenizer, model))


def stock_batches(data: Dataset, max_tokens: int, seed: int, grouped: bool) -> list[list[int]]:
    """Full batches of an epoch, by the code that `train_sampling_strategy` uses; as many pairs each as ours hold."""
    lengths = pair_lengths(data)
    size = round(len(data) / len(TokenBatchSampler(*lengths, max_tokens, seed=0)))
    generator = torch.Generator().manual_seed(seed)
    if grouped:
        order = get_length_grouped_indices(lengths[0].tolist(), size, generator=generator)
    else:
        order = torch.randperm(len(data), generator=generator).tolist()
    return [order[start : start + size] for start in range(0, len(order) - size + 1, size)]


def evenly(batches: Sequence[list[int]], lengths: Sequence[Any], count: int, start: float) -> list[list[int]]:
    """A sample of batches from the smallest to the largest, evenly spaced.

    Grouped batches differ widely in size, and few drawn at random would make any speed.

    Args:
        lengths: source and target tokens of each pair.
        count: of the sample.
        start: from 0 to 1, which of each of `count` parts of the sorted batches is taken.
    """
    padded = [len(batch) * sum(int(side[batch].max()) for side in lengths) for batch in batches]
    order = sorted(range(len(batches)), key=padded.__getitem__)
    return [batches[order[int((part + start) / count * len(order))]] for part in range(count)]


def measure(system: str, shape: Shape, args: TrainingBenchmark, seed: int) -> dict[str, Any]:
    """Target tokens a second of one system, and the precision and attention that it had."""
    prepared = prepare(Recipe.model_validate(recipe(args) | {"output_dir": ""}))
    with TemporaryDirectory() as folder:
        trainer: Any
        if system.startswith("ours"):
            choices = {"bf16": False} if system == "ours float32" else {}
            trainer = ours(shape, args, prepared, folder, seed, **choices)
        else:
            kind = {"grouped": system.startswith(BASE), "bf16": system.endswith("bf16")}
            trainer = stock(shape, args, prepared, folder, seed, **kind)
        watch = Stopwatch(trainer, warm_up())
        trainer.train()
    return {"tokens_per_second": watch.tokens / watch.seconds} | chosen(trainer)


def chosen(trainer: Seq2SeqTrainer) -> dict[str, str]:
    """The precision and the attention of a training that has ended."""
    if isinstance(trainer, AdminTrainer):
        precision = ", then ".join(trainer.precisions)
    else:
        precision = "bfloat16" if trainer.args.bf16 else "float32"
    return {"precision": precision, "attention": trainer.model.config._attn_implementation}


def measure_round(
    shape: Shape, args: TrainingBenchmark, systems: Sequence[str], number: int
) -> dict[str, dict[str, Any]]:
    """All systems in turn, each in a process of its own; every other round in the opposite order."""
    order = systems if number % 2 == 0 else list(reversed(systems))
    found = {system: alone(measure, system, shape, args, number) for system in order}
    return {system: found[system] for system in systems}


def recipe(args: TrainingBenchmark) -> dict[str, Any]:
    """The data and the vocabulary."""
    train = {"source": "train.en.gz", "target": "train.de.gz"}
    data = {"root": args.data, "cache_dir": args.cache, "train": train}
    return {"data": data, "tokenizer": {"vocab_size": args.vocab_size}}
