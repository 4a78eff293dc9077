"""Drawing: ω of the sublayers."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import MaxNLocator

from ...hub.run_folder import OmegaFacts
from ...model.modeling_admin import AdminForConditionalGeneration
from ...model.omega import CLOSED_FORMS
from ...model.sublayers import Stack, count_sublayers
from ...weights.omega import omega_by_sublayer
from ...weights.profiling import omega_origin
from .curves import legend_above, line_style, literal, save

STACKS: tuple[Stack, Stack] = ("encoder", "decoder")


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
