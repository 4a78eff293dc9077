"""Products of linear layers on a CPU by oneDNN, with weights that are laid out once and not at every product.

`nn.Linear` leaves float32 to MKL, which does not use AVX-512 on every processor that has it: on an AMD EPYC a product
took half the time in oneDNN, in float32, too. In bfloat16 it takes a quarter; a layer's input is rounded then, and its
output comes back in float32, so residual stream, LayerNorm, softmax and logits stay float32.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

SMALL = 2**20  # below so many multiplications oneDNN's call costs more than it saves
TYPICAL_ROWS = 320  # the layout hardly depends on it: a batch of 64 sentences in a beam of 5


class PackedProduct:
    """What the `forward` of a layer is while its model translates: x [..., in] to x Wᵀ + b, [..., out].

    The layer itself computes what needs a gradient, is no longer in float32 on a CPU, or is a small product in float32,
    which gains nothing. (In bfloat16 small ones are rounded as large ones are: a translation does not depend on what it
    shares a batch with.) A weight that changed is laid out anew: at once where PyTorch counted the change, else when
    the encoder runs again, see [`LookForChanges`]. A pickle or a copy holds no layout.

    Args:
        layer: of float32.
        dtype: of the product's factors, float32 or bfloat16; sums are float32 in both.
    """

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        self.layer, self.dtype = layer, dtype
        self.smallest = SMALL if dtype == torch.float32 else 0
        self.packed: tuple[tuple, Tensor, Tensor | None] | None = None

    def __reduce__(self) -> tuple:
        return PackedProduct, (self.layer, self.dtype)

    def __call__(self, x: Tensor) -> Tensor:
        layer = self.layer
        if x.numel() * layer.out_features < self.smallest or not self._applies(x):
            return linear(x, layer.weight, layer.bias)
        packed = self.packed
        if packed is None or packed[0] != _state(layer.weight):
            packed = self.packed = self._pack()
        _, weight, bias = packed
        return torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), weight, bias, "none", [], "").to(x.dtype)

    def _applies(self, x: Tensor) -> bool:
        plain = x.dtype == self.layer.weight.dtype == torch.float32 and x.device.type == "cpu"
        compiled = torch.compiler.is_compiling()  # which lays weights out itself, or exports what others run
        return plain and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and not compiled

    def _pack(self) -> tuple[tuple, Tensor, Tensor | None]:
        weight, bias = self.layer.weight, self.layer.bias
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(self.dtype), TYPICAL_ROWS)
        return _state(weight), packed, None if bias is None else bias.detach().to(self.dtype)


class LookForChanges:
    """Runs before each run of the encoder: a layout of another weight is dropped.

    PyTorch counts no change that is made through `weight.data`, as merged adapters and moving averages are. A few
    numbers of each weight tell it, as these change all of them.
    """

    def __init__(self, products: list[PackedProduct]) -> None:
        self.products = products
        self.seen: dict[int, list[float]] = {}

    def __reduce__(self) -> tuple:
        return LookForChanges, (self.products,)

    def __call__(self, module: nn.Module, args: tuple) -> None:
        for index, product in enumerate(self.products):
            weight = product.layer.weight
            sample = _sample(weight) if weight.device.type == "cpu" else []  # elsewhere nothing is laid out
            if self.seen.get(index) != sample:
                self.seen[index], product.packed = sample, None


def _sample(weight: Tensor) -> list[float]:
    return weight.detach().flatten()[:: max(1, weight.numel() // 32)].tolist()


def _state(weight: Tensor) -> tuple[int, int, int]:
    """Is another one when a weight was changed, or another tensor has taken its place."""
    return id(weight), weight.data_ptr(), weight._version


def pack_products(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Compute the products of a model with float32 weights on a CPU by oneDNN from now on, where no gradient is needed.

    The output layer's stay in float32: the scores of translations are differences of its large numbers.
    """
    output = model.get_output_embeddings()
    products = []
    for module in model.modules():
        if type(module) is nn.Linear and type(module.weight) is nn.Parameter:
            product: Any = PackedProduct(module, torch.float32 if module is output else dtype)
            module.forward = product  # type: ignore[method-assign]
            products.append(product)
    model.get_encoder().register_forward_pre_hook(LookForChanges(products))


@cache
def can_pack_products(dtype: torch.dtype = torch.float32) -> bool:
    """Whether oneDNN computes products of a dtype here; PyTorch's compiler makes the same calls of linear layers."""
    if not torch.backends.mkldnn.is_available():
        return False
    layer = PackedProduct(nn.Linear(2, 2), dtype)
    try:
        with torch.no_grad():
            _, weight, bias = layer._pack()
            torch.ops.mkldnn._linear_pointwise(torch.ones(1, 2, dtype=dtype), weight, bias, "none", [], "")
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return True
