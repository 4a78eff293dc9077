"""Drawing: how a cost grows with one size, beside the ideal line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator

from ..runs.pictures.curves import COLOURS, literal, save

ROOM = 0.3  # of the width of a panel, behind the last points for the names of the lines
NARROW = 3.0  # below this range numbers at equal distances are the better ones
WIDE = 100.0  # the range of values up to which there is room for several numbers of a power of ten


@dataclass
class Growth:
    """One panel, both of whose scales are logarithmic.

    Args:
        xlabel, ylabel: with their units.
        sizes: from the smallest to the largest.
        values: what was measured at each.
        ideal: what the values would be.
        low, high: the range of each value over the rounds, if there are several.
        name, ideal_name: of the two lines, at their ends.
        dense: whether the sizes are written out; else as powers of ten.
    """

    xlabel: str
    ylabel: str
    sizes: Sequence[float]
    values: Sequence[float]
    ideal: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    name: str = "measured"
    ideal_name: str = "ideal"
    dense: bool = True


def plot_growth(panels: Sequence[Growth], title: str, path: Path) -> None:
    """Measured points with their range, and the dashed ideal, each named at its end, panel beside panel."""
    size = (5.6 * len(panels), 4.2)
    figure, grid = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    for axes, panel in zip(grid[0], panels, strict=True):
        _draw(axes, panel)
    figure.suptitle(literal(title), fontsize=11)
    save(figure, path)


def _draw(axes: Axes, panel: Growth) -> None:
    axes.set(xscale="log", yscale="log", xlabel=literal(panel.xlabel), ylabel=literal(panel.ylabel))
    axes.plot(panel.sizes, panel.ideal, color="grey", linestyle="--", linewidth=1.5)
    if panel.low:
        spread = [[abs(v - end) for v, end in zip(panel.values, ends, strict=True)] for ends in (panel.low, panel.high)]
        axes.errorbar(panel.sizes, panel.values, yerr=spread, color=COLOURS[0], linestyle="", capsize=4, linewidth=1.5)
    axes.plot(panel.sizes, panel.values, color=COLOURS[0], marker="o", markersize=5, linewidth=2)
    above = panel.values[-1] >= panel.ideal[-1]
    _name(axes, panel.sizes[-1], panel.values[-1], panel.name, COLOURS[0], above)
    _name(axes, panel.sizes[-1], panel.ideal[-1], panel.ideal_name, "dimgrey", not above)
    axes.margins(x=0.05, y=0.15)
    axes.set_xlim(right=panel.sizes[-1] * (panel.sizes[-1] / panel.sizes[0]) ** ROOM)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(FixedLocator([*panel.sizes]))
    axes.tick_params(axis="x", labelsize=9)
    if panel.dense:
        axes.xaxis.set_major_formatter("{x:,.0f}")
    _plain_numbers(axes, panel)
    axes.grid(alpha=0.3)


def _name(axes: Axes, x: float, y: float, name: str, colour: str, above: bool) -> None:
    """A line's name behind its last point, on the side where the other line is not."""
    offset, align = ((9, 2), "bottom") if above else ((9, -2), "top")
    axes.annotate(literal(name), (x, y), offset, textcoords="offset points", va=align, color=colour, fontsize=9)


def _plain_numbers(axes: Axes, panel: Growth) -> None:
    """Numbers written out at several places of each power of ten, where the values span few of those."""
    ends = [*panel.values, *panel.ideal, *panel.low, *panel.high]
    if max(ends) > WIDE * min(ends):
        return
    steps = [lead * 10**power for power in range(-3, 10) for lead in (1, 1.5, 2, 3, 4, 5, 7)]
    shown = [step for step in steps if min(ends) / 1.5 <= step <= max(ends) * 1.5]
    axes.yaxis.set_major_locator(MaxNLocator(6) if max(ends) < NARROW * min(ends) else FixedLocator(shown))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
