"""Dynamic linear combination of layers (Wang et al. 2019): a layer reads a weighted sum of earlier outputs.

Of a stack of L layers y_0 is the embedding and y_l the output of layer l. Row l of W makes the input of layer l+1, the
last row the stack's output; `layer_norms[l − 1]` belongs to y_l. Pre-LN normalises y_l, post-LN the sum up to y_l.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_admin import AdminConfig
from .residual import LAYER_NORM_EPS

WeightedSum = Callable[[Tensor, int], Tensor]  # of y_l and, for l = `row`, all earlier ones


class NoHistory(nn.Module):
    """The history of stacks without DLCL: a layer reads the output of the one before."""

    # `forward`, so that the hooks run by which accelerate brings offloaded weights; likewise below.
    def forward(self) -> Callable[[Tensor], Tensor]:
        """Return the function that maps a layer's output to the next layer's input, for one forward pass."""
        return lambda y: y


class LayerHistory(nn.Module):
    """W_k^{l+1} of a stack of L layers, a lower-triangular (L+1)×(L+1) matrix, with the LayerNorms of the history.

    y_0 has no LayerNorm. Rows start as the average 1/(l+1). Special cases (Wang et al. 2019, fig. 2): the residual
    network has ones on the diagonal alone, the dense residual network ones everywhere; the paper's figure counts
    transparent attention among them, where the last row alone is learned.
    """

    def __init__(self, config: AdminConfig, layers: int):
        super().__init__()
        self.kind, self.layers = config.dlcl_weights, layers
        fixed = self.kind in ("ones", "average")
        self.weight = nn.Buffer(self.initial_weight()) if fixed else nn.Parameter(self.initial_weight())
        self.layer_norms = nn.ModuleList(
            nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS) if config.dlcl_normalize_history else nn.Identity()
            for _ in range(layers)
        )

    def initialize(self) -> None:
        """Give W the value of a new model."""
        init.copy_(self.weight, self.initial_weight())

    def initial_weight(self) -> Tensor:
        """The matrix W of a new model, float32 of shape [L+1, L+1]."""
        ones = self.summed().float()
        return ones if self.kind == "ones" else ones / ones.sum(1, keepdim=True)

    def summed(self) -> Tensor:
        """Entries of W that may differ from 0: the lower triangle, bool of shape [L+1, L+1]."""
        return torch.ones(self.layers + 1, self.layers + 1, dtype=torch.bool).tril()

    def current_weight(self) -> Tensor:
        """W as a pass uses it."""
        return self.weight

    def normalize(self, y: Tensor, row: int) -> Tensor:
        """Apply the LayerNorm of row `row` ≥ 1; row 0, the embedding, has none."""
        return self.layer_norms[row - 1](y) if row else y

    def forward(self) -> Callable[[Tensor], Tensor]:
        """Return the function that maps y_0, y_1, … in turn to the next layer's input, for one forward pass."""
        weighted_sum = (_plain_sum if torch.compiler.is_compiling() else _sum_in_one_buffer)(self.current_weight())
        rows = iter(range(len(self.weight)))
        return lambda y: self.next_input(y, next(rows), weighted_sum)

    def next_input(self, y: Tensor, row: int, weighted_sum: WeightedSum) -> Tensor:
        raise NotImplementedError  # each form of DLCL has its own


class PreNormHistory(LayerHistory):
    """Input of layer l+1 = Σ_{k≤l} W_k^{l+1} LN_k(y_k), Wang et al. 2019, eq. 8."""

    def next_input(self, y: Tensor, row: int, weighted_sum: WeightedSum) -> Tensor:
        return weighted_sum(self.normalize(y, row), row)


class PostNormHistory(LayerHistory):
    """Input of layer l+1 = LN_{l+1}(Σ_{k≤l} W_k^{l+1} y_k), Wang et al. 2019, eq. 9."""

    def next_input(self, y: Tensor, row: int, weighted_sum: WeightedSum) -> Tensor:
        return self.normalize(weighted_sum(y, row), row)


History = NoHistory | LayerHistory


def _plain_sum(weight: Tensor) -> WeightedSum:
    """The sum as the equation has it: plain, for tracing, and what the one in a buffer is tested against."""
    rows: list[Tensor] = []

    def weighted_sum(y: Tensor, row: int) -> Tensor:
        rows.append(y)
        with torch.autocast(y.device.type, enabled=False):
            stacked = torch.stack(rows)
            return torch.einsum("k,k...->...", weight[row, : row + 1].to(stacked.dtype), stacked)

    return weighted_sum


def _sum_in_one_buffer(weight: Tensor) -> WeightedSum:
    """The sum on one buffer of shape [L+1, *y.shape], taken at the first call."""
    previous = torch.empty(0)
    shared: _Pass | None = None

    def weighted_sum(y: Tensor, row: int) -> Tensor:
        nonlocal previous, shared
        if shared is None:
            shared = _Pass(y.new_empty(len(weight), *y.shape), next_backward=len(weight) - 1)
        x, previous = _BufferedSum.apply(y, previous, weight, row, shared)
        return x

    return weighted_sum


@dataclass
class _Pass:
    """Shared state of one forward pass: a buffer [L+1, *y.shape], and the row that is next to run backward."""

    rows: Tensor
    next_backward: int


class _BufferedSum(torch.autograd.Function):
    """x_l = Σ_{k≤l} w_lk y_k over the rows of one buffer, of which this call writes row l.

    Keeping the rows in one buffer makes the sum a single matrix-vector product. Each sum takes an output of the one
    before, `previous`, as an input: `previous` is an empty tensor that only makes autograd run the backward passes from
    the last sum to the first. Once the gradient of w_l is known, row l is not needed any more and takes the gradient of
    x_l instead, so that the gradient of y_l, a sum over all later x, is again one matrix-vector product and needs no
    buffer of its own. With ∂ for a gradient and L = 3:

        forward:   l=0     l=1     l=2     l=3    backward:  l=3     l=2     l=1     l=0
        row 0      y_0     y_0     y_0     y_0               y_0     y_0     y_0     ∂x_0
        row 1              y_1     y_1     y_1               y_1     y_1     ∂x_1    ∂x_1
        row 2                      y_2     y_2               y_2     ∂x_2    ∂x_2    ∂x_2
        row 3                              y_3               ∂x_3    ∂x_3    ∂x_3    ∂x_3

    Forward, x_l is read from rows 0 to l. Backward, ∂w_lk = ⟨y_k, ∂x_l⟩ is read from rows 0 to l before row l is
    written, and ∂y_l = Σ_{m≥l} w_ml ∂x_m from rows l to L after that. Activation checkpointing recomputes the layers,
    never these sums: the buffer stays from the forward to the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, previous: Tensor, weight: Tensor, row: int, shared: _Pass) -> tuple:
        shared.rows[row].copy_(y)
        ctx.row, ctx.shared = row, shared
        ctx.save_for_backward(weight)
        with torch.autocast(y.device.type, enabled=False):  # it would cast the whole buffer
            x = torch.mv(shared.rows[: row + 1].flatten(1).t(), weight[row, : row + 1].to(shared.rows.dtype))
        return x.view_as(y), previous.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_previous: Tensor) -> tuple:
        (weight,) = ctx.saved_tensors
        row, rows = ctx.row, ctx.shared.rows.flatten(1)
        if ctx.shared.next_backward != row:
            raise RuntimeError("DLCL: a backward pass must start from the stack's output, once for each forward pass")
        ctx.shared.next_backward = row - 1
        flat = grad.flatten().to(rows.dtype)
        # The input is the whole of W, since ∂y_l needs a column of it; so its gradient has W's shape, too.
        grad_weight = torch.zeros_like(weight)
        with torch.autocast(grad.device.type, enabled=False):
            grad_weight[row, : row + 1] = torch.mv(rows[: row + 1], flat)
            rows[row].copy_(flat)
            grad_y = torch.mv(rows[row:].t(), weight[row:, row].to(rows.dtype))
        return grad_y.view_as(grad), grad_previous, grad_weight, None, None
