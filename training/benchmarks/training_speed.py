"""Training against stock Marian with the stock Seq2SeqTrainer, in turns in one run.

The same model (post-LN, label smoothing 0.1, dropout 0.1, Adam) and the same token ids. Ours takes batches of a token
budget, stock as many pairs a batch as those hold on average, drawn at random or grouped by length. "ours" gets the
precision and attention that the package chooses. Counted are target tokens a second that are not padding, after a
warm-up. Machines are shared and noisy: compare the ratios.

    python -m training.benchmarks.training_speed --data path/to/multi30k
    python -m training.benchmarks.training_speed --toy --rounds 1
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)
from transformers.trainer_pt_utils import get_length_grouped_indices

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from admin_nmt.data.batching import TokenBatchSampler
from admin_nmt.data.tokenization.byte_bpe import train_tokenizer
from admin_nmt.data.tokenized_pairs import pair_lengths
from admin_nmt.model.sublayers import of_both_stacks
from admin_nmt.system.cpu_features import cpu_bfloat16_is_fast
from admin_nmt.system.markdown import table_text
from training.benchmarks.common import LANGUAGES, Results, Timing, column, corpus, lines, options, spread

BASE = "stock grouped"  # what the others are compared with
SYSTEMS = ("ours", "ours float32", BASE, f"{BASE} bf16", "stock random")
WARM_UP = 10 if torch.cuda.is_available() else 1  # the first updates allocate memory, load kernels, choose algorithms


@dataclass
class Shape:
    """Depth and width of a model, and `updates` of `max_tokens` each that are measured."""

    encoder_layers: int
    decoder_layers: int
    d_model: int
    ffn_dim: int
    heads: int
    updates: int = 0
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


class TimedAdminTrainer(Timing, AdminTrainer):
    """Ours."""


class TimedStockTrainer(Timing, Seq2SeqTrainer):
    """The stock one."""


def tokenise(sides: list[list[str]], folder: Path, vocab_size: int) -> None:
    """Write the pairs' ids and their tokenizer to a folder, where every process finds them."""
    tokenizer = train_tokenizer((line for side in sides for line in side), vocab_size)
    source, target = (tokenizer(side, truncation=True, max_length=500)["input_ids"] for side in sides)
    lengths = {"source_length": list(map(len, source)), "target_length": list(map(len, target))}
    Dataset.from_dict({"input_ids": source, "labels": target} | lengths).save_to_disk(str(folder / "pairs"))
    tokenizer.save_pretrained(folder / "tokenizer")


def measure(system: str, shape: Shape, folder: Path, rounds: int, number: int) -> dict[str, Any]:
    """Target tokens a second of one system, and the precision and attention that it had."""
    pairs, tokenizer = (
        Dataset.load_from_disk(str(folder / "pairs")),
        AutoTokenizer.from_pretrained(folder / "tokenizer"),
    )
    with TemporaryDirectory() as scratch:
        settings: dict[str, Any] = {
            "output_dir": scratch, "learning_rate": 1e-4, "max_grad_norm": 0.0, "seed": number, "disable_tqdm": True,
            "save_strategy": "no", "logging_strategy": "no", "report_to": "none",
        }  # fmt: skip
        trainer: Any
        if system.startswith("ours"):
            settings |= {"optimizer": "adam", "max_tokens": shape.max_tokens, "max_steps": shape.updates + WARM_UP}
            settings |= {"bf16": False} if system == "ours float32" else {}
            args = AdminTrainingArguments(**settings)
            config = AdminConfig(variant="post_ln", vocab_size=len(tokenizer), **shape.fields())
            model = AdminForConditionalGeneration(config)
            trainer = TimedAdminTrainer(model, args, train_dataset=pairs, processing_class=tokenizer)
        else:
            trainer = stock_trainer(system, shape, pairs, tokenizer, settings, (number + 0.5) / rounds % 1)
        trainer.time_training(WARM_UP)
    stock_precision = "bfloat16" if trainer.args.bf16 else "float32"
    precision = ", then ".join(trainer.record.precisions) if system.startswith("ours") else stock_precision
    attention = trainer.model.config._attn_implementation
    return {"tokens_per_second": trainer.target_tokens_per_second, "precision": precision, "attention": attention}


def stock_trainer(
    system: str, shape: Shape, pairs: Dataset, tokenizer: Any, settings: dict[str, Any], start: float
) -> TimedStockTrainer:
    """Seq2SeqTrainer on MarianMTModel, on a sample of the batches that it would make of all the data."""
    pad, grouped = tokenizer.pad_token_id, system.startswith(BASE)
    config = MarianConfig(
        **shape.fields(), vocab_size=len(tokenizer), pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad,
        dropout=0.1, scale_embedding=True, activation_function="relu",
    )  # fmt: skip
    model = MarianMTModel(config)
    batches = stock_batches(pairs, shape.max_tokens, settings["seed"], grouped)
    # Grouped batches differ widely in size: those measured are evenly spaced from the smallest to the largest. Those
    # at random are all alike, and slow.
    count, lengths = shape.updates if grouped else max(1, shape.updates // 2), pair_lengths(pairs)
    padded = [len(batch) * sum(int(side[batch].max()) for side in lengths) for batch in batches]
    order = sorted(range(len(batches)), key=padded.__getitem__)
    sample = Random(settings["seed"]).sample(batches, WARM_UP)
    sample += [batches[order[int((part + start) / count * len(order))]] for part in range(count)]
    args = Seq2SeqTrainingArguments(
        **settings, bf16=system.endswith("bf16"), per_device_train_batch_size=len(batches[0]), num_train_epochs=1,
        label_smoothing_factor=0.1, train_sampling_strategy="sequential", use_cpu=not torch.accelerator.is_available(),
    )  # fmt: skip
    data = pairs.select_columns(["input_ids", "labels"]).select([index for batch in sample for index in batch])
    return TimedStockTrainer(model, args, train_dataset=data, data_collator=DataCollatorForSeq2Seq(tokenizer, model))


def stock_batches(pairs: Dataset, max_tokens: int, seed: int, grouped: bool) -> list[list[int]]:
    """Full batches of an epoch, by the code that `train_sampling_strategy` uses; as many pairs each as ours hold."""
    lengths = pair_lengths(pairs)
    size = round(len(pairs) / len(TokenBatchSampler(*lengths, max_tokens, seed=0)))
    generator = torch.Generator().manual_seed(seed)
    if grouped:
        order = get_length_grouped_indices(lengths[0].tolist(), size, generator=generator)
    else:
        order = torch.randperm(len(pairs), generator=generator).tolist()
    return [order[start : start + size] for start in range(0, len(order) - size + 1, size)]


def table(results: Results) -> str:
    """Target tokens a second, and how many times those of the base."""
    rows = []
    for name, rounds in results.rounds().items():
        shape, key = Shape(**results.settings["shapes"][name]), "tokens_per_second"
        title = f"{name} d {shape.d_model}, {shape.max_tokens:,} tokens"
        for system, last in rounds[-1].items():
            speeds = column(rounds, system, key)
            kinds = f"{last['precision']}, {last['attention']}"
            rows.append([title, system, spread(speeds, column(rounds, BASE, key)), f"{median(speeds):,.0f}", kinds])
    head = ["shape", "system", f"times {BASE}", "target tokens a second", "precision, attention"]
    return table_text(head, rows)


def main(arguments: list[str] | None = None) -> None:
    """Measure what is left, and print the table."""
    parser = options(__doc__)
    parser.add_argument("--shape", nargs="*", help="among 6-6, 4-4 and 30-6; default: all")
    args = parser.parse_args(arguments)
    known, vocab_size = (TOY, 400) if args.toy else (SHAPES, 8000)
    # A processor without instructions for bfloat16 emulates it, which nobody would train with.
    systems = [name for name in SYSTEMS if cpu_bfloat16_is_fast() or torch.cuda.is_available() or "bf16" not in name]
    shapes = {name: asdict(shape) for name, shape in known.items()}
    results = Results.open(args, "training", {"corpus": corpus(args), "vocab_size": vocab_size, "shapes": shapes})
    with TemporaryDirectory() as folder:
        tokenise([lines(args, side, "train", count=29_000) for side in LANGUAGES], Path(folder), vocab_size)
        for name in args.shape or known:
            results.measure_rounds(name, args.rounds, systems, measure, known[name], Path(folder), args.rounds)
    print(table(results))


if __name__ == "__main__":
    main()
