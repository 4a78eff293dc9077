"""Dynamic linear combination of layers (DLCL, Wang et al. 2019): a layer reads a weighted sum of earlier outputs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .configuration_admin import AdminConfig
from .residual import LAYER_NORM_EPS

WeightedSum = Callable[[Tensor, int], Tensor]  # of the output of layer l and, for l = `row`, all earlier ones


class _BufferedSum(torch.autograd.Function):
    """x_l = Σ_{k≤l} w_lk y_k over the rows of one buffer, of which this call writes row l.

    Keeping the rows in one buffer makes the sum a single matrix-vector product. The backward pass runs from the last
    sum to the first, because each takes the `order` of the one before as an input. Once the gradient of w_l is known,
    row l is not needed any more and takes the gradient of x_l instead, so that the gradient of y_l, a sum over all
    later x, is again one matrix-vector product and needs no buffer of its own. With ∂ for a gradient and L = 3:

        forward:   l=0     l=1     l=2     l=3    backward:  l=3     l=2     l=1     l=0
        row 0      y_0     y_0     y_0     y_0               y_0     y_0     y_0     ∂x_0
        row 1              y_1     y_1     y_1               y_1     y_1     ∂x_1    ∂x_1
        row 2                      y_2     y_2               y_2     ∂x_2    ∂x_2    ∂x_2
        row 3                              y_3               ∂x_3    ∂x_3    ∂x_3    ∂x_3

    Forward, x_l is read from rows 0 to l. Backward, ∂w_lk = ⟨y_k, ∂x_l⟩ is read from rows 0 to l before row l is
    written, and ∂y_l = Σ_{m≥l} w_ml ∂x_m from rows l to L after that.
    """

    @staticmethod
    def forward(ctx: Any, y: Tensor, order: Tensor, weight: Tensor, row: int, buffer: Tensor, state: dict) -> tuple:
        buffer[row].copy_(y)
        ctx.row, ctx.buffer, ctx.state = row, buffer, state
        ctx.save_for_backward(weight)
        with torch.autocast(y.device.type, enabled=False):  # it would cast the whole buffer
            x = torch.mv(buffer[: row + 1].flatten(1).t(), weight[row, : row + 1].to(buffer.dtype))
        return x.view_as(y), order.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple:
        (weight,) = ctx.saved_tensors
        row, buffer = ctx.row, ctx.buffer.flatten(1)
        if ctx.state["next"] != row:
            raise RuntimeError("DLCL: a backward pass must start from the stack's output, once for each forward pass")
        ctx.state["next"] = row - 1
        grad = grad.flatten().to(buffer.dtype)
        grad_weight = torch.zeros_like(weight)
        with torch.autocast(grad.device.type, enabled=False):
            grad_weight[row, : row + 1] = torch.mv(buffer[: row + 1], grad)
            buffer[row].copy_(grad)
            grad_y = torch.mv(buffer[row:].t(), weight[row:, row].to(buffer.dtype))
        return grad_y.view_as(ctx.buffer[row]), torch.zeros(()), grad_weight, None, None, None


class NoHistory(nn.Module):
    """What stacks without DLCL use: a layer reads the output of the one before."""

    def begin(self) -> Callable[[Tensor], Tensor]:
        """Return the function that maps a layer's output to the next layer's input."""
        return lambda y: y


class LayerHistory(nn.Module):
    """W_k^{l+1} of a stack of L layers, a lower-triangular (L+1)×(L+1) matrix, with the LayerNorms of the history.

    Row l holds the weights of the input of layer l+1, the last row those of the stack's output; y_0 is the embedding
    and has no LayerNorm. Rows start as the average 1/(l+1). Special cases (Wang et al. 2019, fig. 2): the residual
    network has ones on the diagonal alone, the dense residual network ones everywhere, and transparent attention learns
    the last row.
    """

    def __init__(self, config: AdminConfig, layers: int):
        super().__init__()
        self.kind = config.dlcl_weights
        self.layers = layers
        weight = self.initial_weight()
        self.weight = nn.Parameter(weight) if self.kind == "learned" else nn.Buffer(weight)
        self.layer_norms = nn.ModuleList(
            nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS) if config.dlcl_normalize_history else nn.Identity()
            for _ in range(layers)
        )

    def initial_weight(self) -> Tensor:
        """The matrix W of a new model, float32 of shape [L+1, L+1]."""
        ones = torch.ones(self.layers + 1, self.layers + 1).tril()
        return ones if self.kind == "ones" else ones / ones.sum(1, keepdim=True)

    def normalize(self, y: Tensor, row: int) -> Tensor:
        """Apply the LayerNorm of row `row` ≥ 1; row 0, the embedding, has none."""
        return self.layer_norms[row - 1](y) if row else y

    def begin(self) -> Callable[[Tensor], Tensor]:
        """Return the function that maps a layer's output to the next layer's input, for one forward pass."""
        weighted_sum = _stacked(self.weight) if torch.compiler.is_compiling() else _buffered(self.weight)
        rows = iter(range(len(self.weight)))
        return lambda y: self.layer_input(weighted_sum, y, next(rows))

    def layer_input(self, weighted_sum: WeightedSum, y: Tensor, row: int) -> Tensor:
        """What layer l+1 reads, for l = `row`, given the output `y` of layer l."""
        raise NotImplementedError


class PreNormHistory(LayerHistory):
    """Input of layer l+1 = Σ_{k≤l} W_k^{l+1} LN_k(y_k), Wang et al. 2019, eq. 8."""

    def layer_input(self, weighted_sum: WeightedSum, y: Tensor, row: int) -> Tensor:
        return weighted_sum(self.normalize(y, row), row)


class PostNormHistory(LayerHistory):
    """Input of layer l+1 = LN_{l+1}(Σ_{k≤l} W_k^{l+1} y_k), Wang et al. 2019, eq. 9."""

    def layer_input(self, weighted_sum: WeightedSum, y: Tensor, row: int) -> Tensor:
        return self.normalize(weighted_sum(y, row), row)


def _stacked(weight: Tensor) -> WeightedSum:
    """The sum as the equation has it: plain, for tracing, and what the buffered one is tested against."""
    rows: list[Tensor] = []

    def stacked_sum(y: Tensor, row: int) -> Tensor:
        rows.append(y)
        with torch.autocast(y.device.type, enabled=False):
            stacked = torch.stack(rows)
            return torch.einsum("k,k...->...", weight[row, : row + 1].to(stacked.dtype), stacked)

    return stacked_sum


def _buffered(weight: Tensor) -> WeightedSum:
    """The sum on one buffer of shape [L+1, *y.shape], taken at the first call."""
    state = {"next": len(weight) - 1}
    order = torch.zeros((), requires_grad=torch.is_grad_enabled())
    buffer: Tensor | None = None

    def buffered_sum(y: Tensor, row: int) -> Tensor:
        nonlocal buffer, order
        if buffer is None:
            buffer = y.new_empty(len(weight), *y.shape)
        x, order = _BufferedSum.apply(y, order, weight, row, buffer, state)
        return x

    return buffered_sum


def layer_history(config: AdminConfig, layers: int) -> NoHistory | LayerHistory:
    """The history that `config.variant` names, for a stack of `layers` layers."""
    if not config.has_history:
        return NoHistory()
    return (PreNormHistory if config.normalizes_before else PostNormHistory)(config, layers)
