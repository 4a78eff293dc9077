"""Time and peak memory of the parts that cost most: the loss of a large vocabulary, and DLCL on a deep stack.

Each system runs alone in a process of its own, on the GPU where there is one, in turns: a step after a first one, and
the growth of the peak memory, the GPU's or the process's. Compare the ratios: machines are shared and noisy.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.trainer_pt_utils import LabelSmoother

from admin_nmt import AdminConfig, AdminForConditionalGeneration

from ..model.sublayers import of_both_stacks
from ..trainer.allocator import keep_freed_memory
from ..trainer.peak_memory import peak_memory
from .processes import alone
from .stopwatch import synchronize

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENGTH, STEPS = 16, 1


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
STACKS = ("pre_ln", "dlcl_pre_ln", "dlcl_stacked")
COMPARISONS = {
    "loss": Comparison("loss, 6-6 d 512, V 40,000, 3,584 tokens", LOSSES, 40_000, 3584, (6, 6), 512),
    "DLCL": Comparison("DLCL, 30-1 d 256, V 1,000, 4,096 tokens", STACKS, 1000, 4096, (30, 1), 256),
}
TOY = {
    "loss": Comparison("loss, 1-1 d 32, V 500, 64 tokens", LOSSES, 500, 64, (1, 1), 32),
    "DLCL": Comparison("DLCL, 3-1 d 32, V 100, 64 tokens", STACKS, 100, 64, (3, 1), 32),
}


def batch(vocab_size: int, tokens: int) -> dict[str, torch.Tensor]:
    """Random pairs of one length."""
    ids = torch.randint(1, vocab_size - 1, (tokens // LENGTH, LENGTH)).to(DEVICE)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def label_smoother(sizes: Comparison) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """Stock Marian with what Seq2SeqTrainer does for `label_smoothing_factor`."""
    token_ids = dict.fromkeys(("pad_token_id", "decoder_start_token_id"), sizes.vocab_size - 1)
    model = MarianMTModel(MarianConfig(**sizes.fields(), **token_ids, activation_function="relu")).train().to(DEVICE)
    smoother, data = LabelSmoother(0.1), batch(sizes.vocab_size, sizes.tokens)
    labels = data.pop("labels")
    data["decoder_input_ids"] = labels.roll(1, 1)

    def loss() -> torch.Tensor:
        output: Seq2SeqLMOutput = model(**data)
        return smoother(output, labels)

    return model, loss


def admin(variant: str, sizes: Comparison) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """Our model and its own loss."""
    config = AdminConfig(variant=variant, **sizes.fields())
    model = AdminForConditionalGeneration._from_config(config, attn_implementation="eager").train().to(DEVICE)
    data = batch(sizes.vocab_size, sizes.tokens)
    return model, lambda: model(**data).loss


def stacked(sizes: Comparison) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """DLCL that stacks all outputs at every layer, as a plain implementation does."""
    from ..model import dlcl

    dlcl._sum_in_one_buffer = dlcl._plain_sum
    return admin("dlcl_pre_ln", sizes)


CASES: dict[str, Callable[[Comparison], tuple[nn.Module, Callable[[], torch.Tensor]]]] = {
    "LabelSmoother": label_smoother,
    "LabelSmoother, plain malloc": label_smoother,
    "chunked": lambda sizes: admin("post_ln", sizes),
    "pre_ln": lambda sizes: admin("pre_ln", sizes),
    "dlcl_pre_ln": lambda sizes: admin("dlcl_pre_ln", sizes),
    "dlcl_stacked": stacked,
}


def measure(system: str, sizes: Comparison) -> dict[str, float]:
    """Median seconds of a step and GB of peak memory beyond what was there before the first one."""
    torch.manual_seed(0)
    if not system.endswith("plain malloc"):  # a stock trainer leaves the allocator's settings alone
        keep_freed_memory()
    model, loss = CASES[system](sizes)
    before = peak_memory(DEVICE)
    seconds = []
    for _ in range(STEPS + 1):
        start = time.perf_counter()
        loss().backward()
        synchronize(DEVICE)
        seconds.append(time.perf_counter() - start)
        model.zero_grad()
    return {"seconds": median(seconds[1:]), "gigabytes": (peak_memory(DEVICE) - before) / 2**30}


def measure_round(name: str, number: int, toy: bool = False) -> dict[str, dict[str, float]]:
    """All systems of a comparison in turn, each in a process of its own; every other round in the opposite order."""
    sizes = (TOY if toy else COMPARISONS)[name]
    order = sizes.systems if number % 2 == 0 else tuple(reversed(sizes.systems))
    found = {system: alone(measure, system, sizes) for system in order}
    return {system: found[system] for system in sizes.systems}
