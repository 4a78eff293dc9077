"""In which precision a model translates on a CPU, where nobody names one.

A rule of hardware and width, so that the same command finds the same translations. Residual stream, LayerNorm, softmax
and logits are float32 in any case.
"""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from ...system.cpu_features import cpu_bfloat16_is_fast
from ...system.freed_memory import keep_freed_memory
from .packed_products import can_pack_products, pack_products

NARROWEST = 256  # d_model from which products of bfloat16 pay
NAMES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def named_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """A dtype by its name.

    Raises:
        ValueError: there is none of this name.
    """
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in NAMES:
        raise ValueError(f"dtype: {dtype!r} is not one of {', '.join(NAMES)}")
    return NAMES[dtype]


def products_dtype(d_model: int) -> torch.dtype:
    """Of the products of a model of this width: bfloat16 where this machine's CPU has it and it pays, or float32."""
    return torch.bfloat16 if cpu_bfloat16_is_fast() and d_model >= NARROWEST else torch.float32


def set_precision(models: Sequence[PreTrainedModel], dtype: str | torch.dtype | None) -> str:
    """Have models translate in a precision; says in which.

    On a CPU, float32 and bfloat16 are those of the products alone, and freed memory is kept by this process from then
    on. On another device, in float16, and where oneDNN has no such product, a model is moved to the dtype as a whole.

    Args:
        dtype: None chooses it by [`products_dtype`] for float32 weights on a CPU, else leaves the weights' own.
    """
    said = []
    for model in models:
        wanted = None if dtype is None else named_dtype(dtype)
        products = wanted or products_dtype(model.config.d_model)
        is_plain = model.device.type == "cpu" and model.dtype == torch.float32
        if is_plain and products != torch.float16 and can_pack_products(products):
            keep_freed_memory()
            pack_products(model, products)
            said.append("float32" if products == torch.float32 else "float32 with products of bfloat16")
        else:
            if wanted is not None:
                model.to(wanted)
            said.append(str(model.dtype).removeprefix("torch."))
    return " and ".join(dict.fromkeys(said))
