"""Precision of a training, and its attention on a CPU, where nobody names them: rules of hardware and shape.

A rule and no stopwatch, so that a run that goes on chooses as it did before. Measured on an AMD EPYC with AVX-512's
products of bfloat16, one thread, forward and backward pass in CPU seconds: against float32, bfloat16 took 0.7 to 1.2
times as long at d_model 32, 0.6 to 0.85 at 64, and 0.35 to 0.6 from 128 on, the most in batches of 512 tokens. Plain
attention in bfloat16 took 0.65 to 0.85 of the time of fused attention with sentences of 16 to 1,024 tokens; in float32
the two were within a tenth of each other.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedConfig

from ..system.cpu_features import cpu_bfloat16_is_fast

if TYPE_CHECKING:
    from .arguments import AdminTrainingArguments

NARROWEST = 128  # d_model from which bfloat16 pays in batches of any size
NARROWEST_FUSED = 256  # with fused attention, whose kernel is the slower in bfloat16 where sentences are short
LONGEST_PLAIN = 512  # tokens of a sentence up to which the weights of plain attention are a small part of the memory


def bfloat16_pays(d_model: int, attention: str | None) -> bool:
    """True if products of bfloat16 make a training on this machine's CPU faster.

    Args:
        d_model: width of the model.
        attention: its implementation, "eager" or another.
    """
    return cpu_bfloat16_is_fast() and d_model >= (NARROWEST if attention == "eager" else NARROWEST_FUSED)


def cpu_attention(longest: int) -> str:
    """The implementation of attention for a training on a CPU whose longest sentence has so many tokens."""
    return "eager" if longest <= LONGEST_PLAIN else "sdpa"


def computes_in_bfloat16(args: "AdminTrainingArguments", config: PreTrainedConfig) -> bool:
    """True if a training of a model computes its products in bfloat16: as `bf16` says, or as suits the machine.

    Left to choose, a CPU takes it where [`bfloat16_pays`], for parameters of float32 and what was measured with it.
    """
    if args.bf16 is not None:
        return args.bf16
    elsewhere = args.fp16 or args.mixed_precision != "no" or args.torch_compile or args.adversarial_weight
    in_float32 = str(config.dtype).removeprefix("torch.") in ("float32", "None")
    if elsewhere or args.device.type != "cpu" or not in_float32:
        return False
    return bfloat16_pays(getattr(config, "d_model", 0), config._attn_implementation)


def precision(args: "AdminTrainingArguments", config: PreTrainedConfig) -> str:
    """Names the precision in which products of matrices are computed."""
    if args.fp16:
        return "float16"
    if args.master_weights:
        return "bfloat16 with float32 master weights"
    if computes_in_bfloat16(args, config):
        return "bfloat16"
    return "tf32" if args.tf32 else "float32"


def autocast_on_cpu(args: "AdminTrainingArguments", config: PreTrainedConfig) -> AbstractContextManager:
    """Sets the precision of a forward pass in training on a CPU; on other devices accelerate sees to it.

    Evaluations, `predict` and the measuring of ω stay outside, in float32.
    """
    if args.device.type == "cpu" and computes_in_bfloat16(args, config):
        return torch.autocast("cpu", torch.bfloat16)
    return nullcontext()
