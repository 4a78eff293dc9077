"""Drawing: lines over the sublayers or layers of a stack, a panel for each stack and depth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

from ...runs.pictures.curves import legend_above, save

MOST = 1e4  # the range up to which a scale of logarithms has room for labels at 1, 2 and 5


@dataclass
class Panel:
    """One panel.

    Args:
        title: above it.
        xlabel: of the places, which count from `start`.
        lines: by their label in the legend, the values from the bottom of the stack to its top, and the line's style.
        ylabel: at its left.
        start: the place of the first value.
    """

    title: str
    xlabel: str
    lines: Mapping[str, tuple[Sequence[float], Mapping[str, Any]]]
    ylabel: str = ""
    start: int = 0


def plot_panels(rows: Sequence[Sequence[Panel]], path: Path, *, log: bool = False, width: float = 3.3) -> None:
    """Rows of panels of `width` inches with one legend above; `log` for norms, otherwise shares from 0 to 1."""
    size = (width * len(rows[0]) + 0.6, 3.0 * len(rows) + 0.6)
    figure, axes = plt.subplots(len(rows), len(rows[0]), figsize=size, layout="constrained", squeeze=False, sharey=True)
    for axis, panel in zip(axes.flat, (panel for row in rows for panel in row), strict=True):
        for label, (values, style) in panel.lines.items():
            axis.plot(range(panel.start, panel.start + len(values)), values, label=label, **style)
        axis.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
        axis.set_title(panel.title, fontsize=10)
        axis.set(yscale="log") if log else axis.set(ylim=(0, 1.05))
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    low, high = axes[0, 0].get_ylim()
    for axis in axes.flat if log and high < MOST * low else ():
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    legend_above(figure, axes[0, 0], "")
    save(figure, path)
