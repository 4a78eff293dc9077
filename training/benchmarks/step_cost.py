"""Time and peak memory of a step: the loss of a large vocabulary, and DLCL on a deep stack.

Each system runs alone in a process of its own, in turns: a step after a first one, and the growth of the peak memory.

    python -m training.benchmarks.step_cost
    python -m training.benchmarks.step_cost --toy --rounds 1
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel
from transformers.trainer_pt_utils import LabelSmoother

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.model.sublayers import of_both_stacks
from admin_nmt.trainer.allocator import keep_freed_memory
from admin_nmt.trainer.peak_memory import peak_memory
from training.benchmarks.common import DEVICE, Results, options, ratio, show, synchronize

LENGTH = 16  # tokens of a sentence


@dataclass(frozen=True)
class Comparison:
    """Systems that do the same on a model of one shape; the first is what the others are compared with."""

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


COMPARISONS = {
    "loss, 6-6 d 512, V 40,000, 3,584 tokens": Comparison(("LabelSmoother", "post_ln"), 40_000, 3584, (6, 6), 512),
    "DLCL, 30-1 d 256, V 1,000, 4,096 tokens": Comparison(("pre_ln", "dlcl_pre_ln"), 1000, 4096, (30, 1), 256),
}
TOY = {
    "loss, 1-1 d 32, V 500, 64 tokens": Comparison(("LabelSmoother", "post_ln"), 500, 64, (1, 1), 32),
    "DLCL, 3-1 d 32, V 100, 64 tokens": Comparison(("pre_ln", "dlcl_pre_ln"), 100, 64, (3, 1), 32),
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
    keep_freed_memory()  # as a training does
    model, loss = label_smoother(sizes) if system == "LabelSmoother" else admin(system, sizes)
    before, seconds = peak_memory(DEVICE), 0.0
    for _ in range(2):
        start = time.perf_counter()
        loss().backward()
        synchronize()
        seconds = time.perf_counter() - start
        model.zero_grad()
    return {"seconds": seconds, "gigabytes": (peak_memory(DEVICE) - before) / 2**30}


def main(arguments: list[str] | None = None) -> None:
    """Measure what is left, and print the table."""
    args = options(__doc__, "step-cost.json").parse_args(arguments)
    results, rows = Results(args.output, {"toy": args.toy}), []
    for title, sizes in (TOY if args.toy else COMPARISONS).items():
        found = results.rounds(title, sizes.systems, args.rounds, measure, sizes)
        base, own = (found[system] for system in sizes.systems)
        ratios = [ratio(*([max(one[key], 1e-9) for one in side] for side in (own, base))) for key in ("seconds", "gigabytes")]
        rows.append([title, " / ".join(reversed(sizes.systems)), *ratios])
    show("A step", ["model", "systems", "time", "memory"], rows)
    print(f"\n{args.output}")


if __name__ == "__main__":
    main()
