"""Scaled dot-product attention of each backend on shapes of real batches: the first call of a shape, and later ones."""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from ...trainer.memory_prediction import BatchShape
from ..stopwatch import synchronize
from .gpu_setup import Setup
from .update_speed import TOY_TOKENS, shapes_of, some_batches

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
HEADS, WIDTH = 8, 64
REPEATED = 5  # calls after the first


def inputs(shape: BatchShape, kind: str, device: torch.device) -> dict[str, Any]:
    """Random queries, keys and values [sentences, heads, length, width] in bfloat16, and the mask of their kind.

    Args:
        kind: "encoder" and "cross" mask the padding of a quarter of the source, "decoder" is causal without a mask.
    """
    queries = shape.source if kind == "encoder" else shape.target
    keys = shape.target if kind == "decoder" else shape.source
    values: dict[str, Any] = {
        name: torch.randn(
            shape.sentences, HEADS, length, WIDTH, device=device, dtype=torch.bfloat16, requires_grad=True
        )
        for name, length in (("query", queries), ("key", keys), ("value", keys))
    }
    if kind == "decoder":
        return values | {"is_causal": True}
    present = torch.ones(shape.sentences, 1, queries, keys, dtype=torch.bool, device=device)
    present[1::2, ..., keys - keys // 4 :] = False
    return values | {"attn_mask": present}


def call(values: dict[str, Any], device: torch.device) -> float:
    """Milliseconds of a forward and a backward pass."""
    synchronize(device)
    start = time.perf_counter()
    output: Tensor = scaled_dot_product_attention(**values)
    torch.autograd.grad(output, [values[name] for name in ("query", "key", "value")], output.detach())
    synchronize(device)
    return 1000 * (time.perf_counter() - start)


def measure_attention(setup: Setup, max_tokens: int = 4096, shapes: int = 20) -> dict[str, Any]:
    """Milliseconds of the first and of a repeated call, over all shapes, for each backend and kind of attention."""
    tokens = TOY_TOKENS if setup.toy else max_tokens
    found = shapes_of(some_batches(setup.prepared().data["train"], tokens, shapes), tokens)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    call(inputs(BatchShape(2, 8, 8), "decoder", device), device)  # loads the libraries
    return {"max_tokens": tokens, "shapes": [str(shape) for shape in found], "rows": list(rows(found, device))}


def rows(shapes: list[BatchShape], device: torch.device) -> Iterator[dict[str, Any]]:
    """One a backend and kind; `error` where the backend does not take it."""
    for kind in ("encoder", "decoder", "cross"):
        for name in ("chosen by torch", *BACKENDS):
            allowed = list(BACKENDS.values()) if name == "chosen by torch" else [BACKENDS[name]]
            row: dict[str, Any] = {"kind": kind, "backend": name, "first_ms": [], "repeated_ms": []}
            try:
                with sdpa_kernel(allowed):
                    for shape in shapes:
                        values = inputs(shape, kind, device)
                        first, *repeated = [call(values, device) for _ in range(1 + REPEATED)]
                        row["first_ms"].append(first)
                        row["repeated_ms"].append(sorted(repeated)[REPEATED // 2])
            except RuntimeError as error:
                row["error"] = str(error).partition("\n")[0].partition(". ")[0]
            yield row
