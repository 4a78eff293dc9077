"""Drawing: the weights of the layer history (DLCL)."""

import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from ...model.modeling_admin import AdminForConditionalGeneration
from .curves import COLOURS, save


def plot_history_weights(model: AdminForConditionalGeneration, path: Path) -> None:
    """The DLCL matrices W of both stacks, and the weight of one layer in all later ones: figure 5 of Wang et al. 2019.

    Row l is the input of layer l + 1, the last row the output of the stack; column 0 is the embedding. Above: W with
    the paper's masking, see `masked`. Below: nothing hidden, each row divided by the sum of its absolute values.

    Raises:
        ValueError: the model has no DLCL.
    """
    if not model.config.has_history:
        raise ValueError(f"variant {model.config.variant!r} has no DLCL weights to show")
    figure, axes = plt.subplots(2, 3, figsize=(13, 8), layout="constrained", width_ratios=(3, 3, 2))
    for column, name in enumerate(("encoder", "decoder")):
        weight = getattr(model.model, name).history.current_weight().detach().float().cpu()
        relative = weight / weight.tril().abs().sum(1, keepdim=True).clamp(min=1e-12)
        draw_weights(axes[0, column], masked(weight), f"{name}: W")
        draw_weights(axes[1, column], relative, f"{name}: W, share of the row")
        if name == "encoder":
            layer = min(10, len(weight) // 2)
            draw_column(axes[0, 2], weight, layer, f"encoder: weight of $y_{{{layer}}}$")
            draw_column(axes[1, 2], relative, layer, f"encoder: share of $y_{{{layer}}}$")
    save(figure, path)


def masked(weight: Tensor) -> Tensor:
    """NaN for weights that the paper hides: below 0.1 or 5 % of the largest in their row, in absolute value."""
    size = weight.tril().abs()
    return weight.masked_fill((size < 0.1) | (size < 0.05 * size.amax(1, keepdim=True)), math.nan)


def draw_weights(axes: plt.Axes, values: Tensor, title: str) -> None:
    """A lower-triangular matrix as a heat map whose middle colour is 0; what is NaN or above the diagonal is grey."""
    shown = values.masked_fill(torch.ones_like(values).triu(1).bool(), math.nan)
    limit = float(shown.nan_to_num(0).abs().max()) or 1.0
    axes.set_facecolor("0.93")
    image = axes.imshow(shown.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="none")
    axes.set(title=title, xlabel="output of layer (0: embedding)", ylabel="input of layer")
    axes.set_yticks(rows := sparse(len(values)), [input_of(row, len(values)) for row in rows])
    axes.set_xticks(sparse(len(values)))
    axes.figure.colorbar(image, ax=axes, shrink=0.7)


def draw_column(axes: plt.Axes, values: Tensor, layer: int, title: str) -> None:
    """The weight of a layer's output in the inputs of all later layers."""
    rows = list(range(layer, len(values)))
    axes.bar(rows, values[layer:, layer].numpy(), color=COLOURS[0])
    axes.set(title=title, xlabel="input of layer")
    axes.set_xticks(places := [rows[i] for i in sparse(len(rows), 7)], [input_of(row, len(values)) for row in places])
    axes.axhline(0, color="black", linewidth=0.8)
    axes.grid(alpha=0.3, axis="y")


def input_of(row: int, rows: int) -> str:
    """The layer that reads a row of W."""
    return str(row + 1) if row + 1 < rows else "out"


def sparse(count: int, most: int = 12) -> list[int]:
    """At most about `most` of the numbers below `count`, the last one among them."""
    step = max(1, math.ceil(count / most))
    return sorted({*range(0, count - step // 2 - 1, step), count - 1})
