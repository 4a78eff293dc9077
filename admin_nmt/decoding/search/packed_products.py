"""Products of linear layers on a CPU by oneDNN, with weights that are laid out once and not at every product.

`nn.Linear` leaves float32 to MKL, which does not use AVX-512 on every processor that has it: on an AMD EPYC a product
took half the time in oneDNN, in float32, too. In bfloat16 it takes a quarter; a layer's input is rounded then, and its
output comes back in float32, so residual stream, LayerNorm, softmax and logits stay float32.
"""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from .module_copies import copy_modules

SMALL = 2**20  # below so many multiplications oneDNN's call costs more than it saves
TYPICAL_ROWS = 320  # the layout hardly depends on it: a batch of 64 sentences in a beam of 5


class PackedLinear(nn.Linear):
    """A linear layer for translating: x [..., in] to x Wᵀ + b, [..., out], with its weight laid out for oneDNN.

    The parameters are those of the layer that it stands for, and compute what needs a gradient, is not in float32 on a
    CPU, or is a small product in float32, which gains nothing. (In bfloat16 small ones are rounded as large ones are: a
    translation does not depend on what it shares a batch with.) The layout is that of the weight at construction: like
    a quantized layer it does not follow later changes. A pickle or a copy lays the weight out again.

    Args:
        layer: of float32, on a CPU.
        dtype: of the product's factors, float32 or bfloat16; sums are float32 in both.
    """

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.dtype = layer.in_features, layer.out_features, dtype
        self.weight, self.bias = layer.weight, layer.bias
        self._pack()

    def _pack(self) -> None:
        weight, bias = self.weight.detach().to(self.dtype), self.bias
        self.packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight, TYPICAL_ROWS)
        self.packed_bias = None if bias is None else bias.detach().to(self.dtype)

    def __reduce__(self) -> tuple:
        plain = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        plain.weight, plain.bias = self.weight, self.bias
        return PackedLinear, (plain, self.dtype)

    def forward(self, x: Tensor) -> Tensor:
        if not self._applies(x):
            return linear(x, self.weight, self.bias)
        weight, bias = self.packed_weight, self.packed_bias
        return torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), weight, bias, "none", [], "").to(x.dtype)

    def _applies(self, x: Tensor) -> bool:
        is_small = self.dtype == torch.float32 and x.numel() * self.out_features < SMALL
        is_plain = x.dtype == self.weight.dtype == torch.float32 and x.device.type == self.weight.device.type == "cpu"
        compiled = torch.compiler.is_compiling()  # which lays weights out itself, or exports what others run
        others = torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or compiled
        return is_plain and not is_small and not others


def with_packed_products(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A copy of a model of float32 on a CPU, over the same weights, whose linear layers are [`PackedLinear`].

    The output layer's products stay in float32: the scores of translations are differences of its large numbers.
    """
    output = model.get_output_embeddings().weight

    def packed(module: nn.Module) -> nn.Module:
        if type(module) is not nn.Linear or type(module.weight) is not nn.Parameter:
            return module
        return PackedLinear(module, torch.float32 if module.weight is output else dtype)

    return copy_modules(model, packed)


@cache
def can_pack_products(dtype: torch.dtype = torch.float32) -> bool:
    """Tell whether oneDNN computes products of a dtype here; torch's compiler makes the same calls of linear layers."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        with torch.no_grad():
            weight = torch.ops.mkldnn._reorder_linear_weight(torch.ones(2, 2, dtype=dtype), TYPICAL_ROWS)
            torch.ops.mkldnn._linear_pointwise(torch.ones(1, 2, dtype=dtype), weight, None, "none", [], "")
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return True
