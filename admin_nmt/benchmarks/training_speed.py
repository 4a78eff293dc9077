"""Training throughput against stock Marian with the stock Seq2SeqTrainer, alternating in one run.

The same model (post-LN, label smoothing 0.1, dropout 0.1, Adam), the same token ids and the same number of updates in
an epoch: ours takes batches of 4,096 tokens, stock takes as many pairs a batch as those hold on average, drawn at
random or grouped by length. Counted are target tokens that are not padding, a second; on a GPU after some updates to
warm up. Machines are shared and noisy: compare the ratios.
"""

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import median
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

from ..data.batching import TokenBatchSampler
from ..data.tokenizing import pair_lengths
from ..reports.markdown import table_text
from ..runs.building import build_trainer
from ..runs.preparation import Prepared, prepare
from ..runs.recipe import Recipe
from .stopwatch import Stopwatch


@dataclass
class Shape:
    """Depth and width of a model, and the updates of a measurement."""

    encoder_layers: int
    decoder_layers: int
    d_model: int
    ffn_dim: int
    heads: int
    updates: int

    def fields(self) -> dict[str, int]:
        """Under the names that both configurations use."""
        both = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in self._stack().items()}
        layers = {"encoder_layers": self.encoder_layers, "decoder_layers": self.decoder_layers}
        return both | layers | {"d_model": self.d_model, "max_position_embeddings": 512}

    def _stack(self) -> dict[str, int]:
        return {"ffn_dim": self.ffn_dim, "attention_heads": self.heads}


SHAPES = {
    "6-6": Shape(6, 6, 512, 2048, 8, 4),
    "4-4": Shape(4, 4, 128, 256, 4, 24),
    "30-6": Shape(30, 6, 256, 1024, 4, 4),
}
SYSTEMS = ("ours", "stock grouped", "stock random")


def warm_up() -> int:
    """Updates that are not counted: on a GPU the first ones load kernels and choose algorithms, on a CPU none does."""
    return 10 if torch.cuda.is_available() else 0


@dataclass
class TrainingBenchmark:
    """What is measured.

    Args:
        data: folder of Multi30k: train.en.gz, train.de.gz.
        shapes: among `SHAPES`.
        max_tokens: token budget of a batch.
        rounds: measurements of each system; the table shows their median.
        output: folder of the results.
    """

    data: str
    shapes: list[str] = field(default_factory=lambda: list(SHAPES))
    max_tokens: int = 4096
    rounds: int = 2
    output: str = "model_cards/benchmark"


def common(folder: str, seed: int) -> dict[str, Any]:
    """Arguments of both trainers."""
    quiet = {"disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no", "report_to": "none"}
    return quiet | {"output_dir": folder, "learning_rate": 1e-4, "max_grad_norm": 0.0, "seed": seed}


def ours(shape: Shape, args: TrainingBenchmark, prepared: Prepared, folder: str, seed: int) -> Any:
    """AdminTrainer on our post-LN model."""
    settings = common(folder, seed) | {
        "optimizer": "adam",
        "max_tokens": args.max_tokens,
        "max_steps": shape.updates + warm_up(),
    }
    model = shape.fields() | {"variant": "post_ln", "attn_implementation": "eager"}
    values = {"output_dir": settings.pop("output_dir"), "data": corpora(args), "model": model, "training": settings}
    return build_trainer(Recipe.model_validate(values), prepared)


def stock(shape: Shape, args: TrainingBenchmark, prepared: Prepared, folder: str, seed: int, grouped: bool) -> Any:
    """Seq2SeqTrainer on MarianMTModel, on a sample of the batches that it would make of all the data."""
    tokenizer = prepared.source_tokenizer
    vocabulary = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "eos_token_id": 0}
    config = MarianConfig(**shape.fields(), **vocabulary, decoder_start_token_id=tokenizer.pad_token_id, dropout=0.1,
                          scale_embedding=True, activation_function="relu")  # fmt: skip
    model = MarianMTModel(config)
    data = prepared.data["train"].select_columns(["input_ids", "labels"])
    batches = stock_batches(prepared.data["train"], args.max_tokens, seed, grouped)
    chosen = Random(seed).sample(batches, shape.updates + warm_up())
    arguments = Seq2SeqTrainingArguments(
        **common(folder, seed),
        per_device_train_batch_size=len(batches[0]),
        num_train_epochs=1,
        label_smoothing_factor=0.1,
        train_sampling_strategy="sequential",
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


def measure(system: str, name: str, args: TrainingBenchmark, seed: int) -> float:
    """Target tokens a second of one system."""
    shape, prepared = SHAPES[name], prepare(Recipe.model_validate({"output_dir": "", "data": corpora(args)}))
    with TemporaryDirectory() as folder:
        if system == "ours":
            trainer = ours(shape, args, prepared, folder, seed)
        else:
            trainer = stock(shape, args, prepared, folder, seed, grouped=system == "stock grouped")
        watch = Stopwatch(trainer, warm_up())
        trainer.train()
    return watch.tokens / watch.seconds


def corpora(args: TrainingBenchmark) -> dict[str, Any]:
    """The training data of the recipe."""
    return {"root": args.data, "train": {"source": "train.en.gz", "target": "train.de.gz"}}


def alone(function: Callable, *arguments: Any) -> Any:
    """Call a function in a process of its own: settings of the memory allocator outlive a trainer."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def table(speeds: dict[str, dict[str, list[float]]]) -> str:
    """Medians and ratios as a Markdown table."""
    rows = []
    for name, systems in speeds.items():
        shape = SHAPES[name]
        mine, grouped, random = (median(systems[system]) for system in SYSTEMS)
        rates = [f"{rate:,.0f}" for rate in (mine, grouped, random)]
        ratios = [f"{mine / grouped:.2f}", f"{mine / random:.2f}"]
        rows.append([f"{name}, d {shape.d_model}, ffn {shape.ffn_dim}", *rates, *ratios])
    return table_text(["shape", *SYSTEMS, "ours / grouped", "ours / random"], rows) + "\n"


def run_training_benchmark(args: TrainingBenchmark) -> None:
    """Measure all systems in turn; throughput.json and throughput.md hold what is there so far."""
    unknown = set(args.shapes) - set(SHAPES)
    if unknown:
        raise ValueError(f"--shape: {min(unknown)!r} is not one of {', '.join(SHAPES)}")
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    speeds: dict[str, dict[str, list[float]]] = {}
    for name in args.shapes:
        speeds[name] = {system: [] for system in SYSTEMS}
        for seed in range(args.rounds):
            for system in SYSTEMS:
                speed = alone(measure, system, name, args, seed)
                speeds[name][system].append(speed)
                print(f"{name} round {seed + 1}: {system} {speed:,.0f} target tokens a second", flush=True)
        facts = {"arguments": asdict(args) | {"data": "Multi30k En-De"}, "threads": torch.get_num_threads()}
        facts |= {"torch": torch.__version__, "tokens_per_second": speeds}
        (folder / "throughput.json").write_text(json.dumps(facts, indent=1) + "\n")
        (folder / "throughput.md").write_text(table(speeds))
    print(table(speeds))
