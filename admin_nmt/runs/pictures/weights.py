"""Drawing: what is inside a model, how large it is and how fast."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from admin_nmt import AdminForConditionalGeneration

from ...hub.run_folder import OmegaFacts
from ...model.omega import log_n
from ...model.sublayers import Stack, count_sublayers
from ...weights.omega import omega_by_sublayer, omega_origin
from .curves import COLOURS, legend_above, line_style, literal, save

STACKS: tuple[Stack, Stack] = ("encoder", "decoder")
CLOSED_FORMS: dict[str, Callable[[int], float]] = {"log_n": log_n, "n": math.sqrt}


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
    for column, name in enumerate(STACKS):
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


def plot_omega(models: Mapping[str, AdminForConditionalGeneration], path: Path) -> None:
    """ω by sublayer: profiled, closed form or α as the models hold it; a trained one with its spread over features.

    The grey lines are the two closed forms for the depth of each model, where they end. Every model must have ω.
    """
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    for axes, name in zip(panels, STACKS, strict=True):
        for index, (label, model) in enumerate(models.items()):
            by_sublayer = omega_by_sublayer(model)
            omega = torch.stack([w.float().cpu() for key, w in by_sublayer.items() if key.startswith(name)])
            places, middle, deviation = range(1, len(omega) + 1), omega.mean(1).numpy(), omega.std(1).numpy()
            style = line_style(index)
            axes.plot(places, middle, label=literal(f"{label} ({origin(model)})"), marker=".", **style)
            if model.config.train_omega:
                axes.fill_between(places, middle - deviation, middle + deviation, color=style["color"], alpha=0.2)
        depths = sorted({count_sublayers(model.config, name) for model in models.values()})
        for (rule, form), dashes in zip(CLOSED_FORMS.items(), ("--", ":"), strict=True):
            for number, depth in enumerate(depths):
                entry = f"closed form {rule}" if number == 0 else None  # one in the legend
                axes.plot([0, depth], [form(depth)] * 2, color="grey", linewidth=1.2, linestyle=dashes, label=entry)
        # In the title, where it cannot be read as a turned letter: alone on the axis it passes for ε.
        axes.set(title=f"ω of the {name}", xlabel="sublayer, from the bottom of the stack", ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    legend_above(figure, panels[0], "")
    save(figure, path)


def origin(model: AdminForConditionalGeneration) -> str:
    """Origin of a model's ω, in words."""
    origins = {"deepnorm": "α of DeepNorm", "profiled": "profiled", "profiled_reference": "profiled in reference mode"}
    found = omega_origin(model.config)
    kind = origins.get(found, f"closed form {found}")
    return f"{kind}, then trained" if model.config.train_omega else kind


def plot_mean_omega(omega: OmegaFacts, path: Path) -> None:
    """A small plot of the mean ω of each sublayer, for a model card."""
    figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
    # Okabe and Ito's blue and vermilion, which colour-blind readers tell apart, and markers for print.
    for stack, colour, marker in (("encoder", "#0072B2", "o"), ("decoder", "#D55E00", "s")):
        values = getattr(omega, stack)
        axes.plot(
            range(1, len(values) + 1), values, color=colour, marker=marker, markersize=3.5, linewidth=1.2, label=stack
        )
    highest = max(*omega.encoder, *omega.decoder)
    axes.set(xlabel="sublayer, from the bottom of the stack", ylim=(0, 1.1 * highest))
    axes.set_ylabel("mean ω", rotation=0, ha="right", va="center")  # turned it reads as ε
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)
