"""Time and peak memory of a step: the loss of a large vocabulary, and DLCL on a deep stack.

One step, forward and backward, in float32 with plain attention, after a first one; less is better. *LabelSmoother* is
stock `MarianMTModel` with what `Seq2SeqTrainer` does for label smoothing, under the allocator's settings that our
trainer makes, and without them (*plain malloc*); *chunked* is our model with its loss. *pre_ln* is a stack without
DLCL, *dlcl_pre_ln* one with it. Each system runs alone in a process of its own, in turns. Memory is the growth of the
peak, the GPU's or the process's.

    python -m training.benchmarks.step_cost
    python -m training.benchmarks.step_cost --toy --rounds 1
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel
from transformers.trainer_pt_utils import LabelSmoother

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.model.sublayers import of_both_stacks
from admin_nmt.system.markdown import table_text
from admin_nmt.trainer.process_memory import keep_freed_memory, peak_memory
from training.benchmarks.common import DEVICE, Results, column, options, seconds, spread

LENGTH = 16  # tokens of a sentence


@dataclass(frozen=True)
class Comparison:
    """Systems that do the same on a model of one shape; the first is what the others are compared with."""

    title: str
    systems: tuple[str, ...]
    vocab_size: int
    tokens: int
    layers: tuple[int, int]
    d_model: int

    def fields(self) -> dict[str, Any]:
        """Of both configurations."""
        heads = self.d_model // 32 if self.d_model < 512 else 8
        stacks = of_both_stacks(attention_heads=heads, ffn_dim=4 * self.d_model)
        layers = {"encoder_layers": self.layers[0], "decoder_layers": self.layers[1], "d_model": self.d_model}
        return stacks | layers | {"dropout": 0.1, "max_position_embeddings": 512, "vocab_size": self.vocab_size}


LOSSES = ("LabelSmoother", "LabelSmoother, plain malloc", "chunked")
STACKS = ("pre_ln", "dlcl_pre_ln")
COMPARISONS = {
    "loss": Comparison("loss, 6-6 d 512, V 40,000, 3,584 tokens", LOSSES, 40_000, 3584, (6, 6), 512),
    "DLCL": Comparison("DLCL, 30-1 d 256, V 1,000, 4,096 tokens", STACKS, 1000, 4096, (30, 1), 256),
}
TOY = {
    "loss": Comparison("loss, 1-1 d 32, V 500, 64 tokens", LOSSES, 500, 64, (1, 1), 32),
    "DLCL": Comparison("DLCL, 3-1 d 32, V 100, 64 tokens", STACKS, 100, 64, (3, 1), 32),
}


def batch(sizes: Comparison) -> dict[str, Tensor]:
    """Random pairs of one length."""
    ids = torch.randint(1, sizes.vocab_size - 1, (sizes.tokens // LENGTH, LENGTH)).to(DEVICE)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def label_smoother(sizes: Comparison) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Stock Marian with what Seq2SeqTrainer does for `label_smoothing_factor`."""
    token_ids = dict.fromkeys(("pad_token_id", "decoder_start_token_id"), sizes.vocab_size - 1)
    model = MarianMTModel(MarianConfig(**sizes.fields(), **token_ids, activation_function="relu")).train().to(DEVICE)
    smoother, data = LabelSmoother(0.1), batch(sizes)
    labels = data.pop("labels")
    data["decoder_input_ids"] = labels.roll(1, 1)
    return model, lambda: smoother(model(**data), labels)


def admin(variant: str, sizes: Comparison) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Our model and its own loss."""
    config = AdminConfig(variant=variant, **sizes.fields())
    model = AdminForConditionalGeneration._from_config(config, attn_implementation="eager").train().to(DEVICE)
    data = batch(sizes)
    return model, lambda: model(**data).loss


def measure(system: str, sizes: Comparison, number: int) -> dict[str, float]:
    """Seconds of a step after a first one, and GB of peak memory beyond what was there before."""
    torch.manual_seed(0)
    if not system.endswith("plain malloc"):  # a stock trainer leaves the allocator's settings alone
        keep_freed_memory()
    stock, variant = system.startswith("LabelSmoother"), "post_ln" if system == "chunked" else system
    model, loss = label_smoother(sizes) if stock else admin(variant, sizes)
    before = peak_memory(DEVICE)
    loss().backward()
    model.zero_grad()
    taken = seconds(lambda: loss().backward())
    return {"seconds": taken, "gigabytes": (peak_memory(DEVICE) - before) / 2**30}


def table(results: Results) -> str:
    """Seconds and memory of a step, and how many times those of the first system."""
    rows = []
    for name, rounds in results.rounds().items():
        title, base = results.settings[name]["title"], next(iter(rounds[-1]))
        for system in rounds[-1]:
            cells = []
            for key in ("seconds", "gigabytes"):
                own = column(rounds, system, key)
                cells += [spread(own, column(rounds, base, key)), f"{median(own):.2f}"]
            rows.append([title, system, *cells])
    head = ["comparison", "system", "time, times the first", "seconds", "memory, times the first", "GB"]
    return table_text(head, rows)


def main(arguments: list[str] | None = None) -> None:
    """Measure what is left, and print the table."""
    args = options(__doc__).parse_args(arguments)
    known = TOY if args.toy else COMPARISONS
    results = Results.open(args, "loss", {name: asdict(sizes) for name, sizes in known.items()})
    for name, sizes in known.items():
        results.measure_rounds(name, args.rounds, sizes.systems, measure, sizes)
    print(table(results))


if __name__ == "__main__":
    main()
