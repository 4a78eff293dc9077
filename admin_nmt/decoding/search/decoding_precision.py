"""In which precision a model translates on a CPU, where nobody names one.

A rule of hardware and width, so that the same command finds the same translations. Residual stream, LayerNorm, softmax
and logits are float32 in any case.
"""

import torch
from transformers import PreTrainedModel

from ...system.cpu_features import cpu_bfloat16_is_fast
from .packed_products import can_pack_products, with_packed_products

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
    """The dtype of a model's products at this width: bfloat16 where this CPU has it and it pays, or float32."""
    return torch.bfloat16 if cpu_bfloat16_is_fast() and d_model >= NARROWEST else torch.float32


def in_precision(model: PreTrainedModel, dtype: str | torch.dtype | None) -> tuple[PreTrainedModel, str]:
    """A model that translates in a precision, and which one that is.

    On a CPU, float32 and bfloat16 are those of the products alone, which a copy over the same weights computes. On
    another device, in float16, and where oneDNN has no such product, the model is moved to the dtype as a whole.

    Args:
        dtype: None chooses it by [`products_dtype`] for float32 weights on a CPU, else leaves the weights' own.
    """
    wanted = None if dtype is None else named_dtype(dtype)
    products = wanted or products_dtype(model.config.d_model)
    is_plain = model.device.type == "cpu" and model.dtype == torch.float32
    if is_plain and products != torch.float16 and can_pack_products(products):
        name = "float32" if products == torch.float32 else "float32 with products of bfloat16"
        return with_packed_products(model, products), name
    if wanted is not None:
        model.to(wanted)
    return model, str(model.dtype).removeprefix("torch.")
