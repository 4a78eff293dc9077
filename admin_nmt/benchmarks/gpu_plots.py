"""Pictures of what was measured on a GPU, drawn from the rows of its tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from ..runs.pictures.curves import COLOURS, MARKERS, legend_above, literal, save

Row = Mapping[str, Any]
GB = 1e9


def plot_updates(rows: Mapping[str, Row], device: str, path: Path) -> None:
    """Target tokens a second of training by case, with the model FLOP utilisation where the card's peak is known."""
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.3 * len(rows)), layout="constrained")
    speeds = [row["tokens_per_second"] for row in rows.values()]
    depths = list(dict.fromkeys((row["encoder_layers"], row["decoder_layers"]) for row in rows.values()))
    for (encoder, decoder), colour in zip(depths, COLOURS, strict=False):
        own = [
            n
            for n, row in enumerate(rows.values())
            if (row["encoder_layers"], row["decoder_layers"]) == (encoder, decoder)
        ]
        axes.barh(own, [speeds[n] for n in own], color=colour, label=f"{encoder}-{decoder}")
    for place, row in enumerate(rows.values()):
        used = "" if row["mfu"] is None else f" · {row['mfu']:.1%}"
        axes.text(row["tokens_per_second"], place, f" {row['tokens_per_second']:,.0f}{used}", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [*map(literal, rows)])
    axes.invert_yaxis()
    axes.margins(y=0.02)
    utilised = any(row["mfu"] is not None for row in rows.values())
    label = "target tokens per second" + (" · model FLOP utilisation" if utilised else "")
    axes.set(xlabel=label, xlim=(0, 1.25 * max(speeds)))
    axes.grid(axis="x", alpha=0.3)
    legend_above(figure, axes, literal(device))
    save(figure, path)


def plot_memory(rows: Sequence[Row], device: str, path: Path) -> None:
    """Predicted memory against what was allocated, and reserved by the allocator; the line is equality."""
    figure, axes = plt.subplots(figsize=(6, 5), layout="constrained")
    for index, (name, label) in enumerate((("allocated", "allocated"), ("reserved", "held by the allocator"))):
        points = [(row["predicted"] / GB, row[name] / GB) for row in rows if row.get(name) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), MARKERS[index], color=COLOURS[index], label=label, linestyle="")
    ends = [f(row["predicted"] / GB for row in rows) for f in (min, max)]
    axes.plot(ends, ends, color="grey", linewidth=1, linestyle="--", label="as predicted")
    axes.set(xlabel="predicted, GB", ylabel="measured, GB", title=literal(device), xscale="log", yscale="log")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    save(figure, path)


def plot_attention(rows: Sequence[Row], device: str, path: Path) -> None:
    """Milliseconds of attention over all shapes by backend: the first call of each shape, and a repeated one."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure, panels = plt.subplots(1, len(kinds), figsize=(10, 4), layout="constrained", sharey=True, squeeze=False)
    for axes, kind in zip(panels[0], kinds, strict=True):
        own = [row for row in rows if row["kind"] == kind and "error" not in row]
        for index, (name, label) in enumerate((("first_ms", "first call"), ("repeated_ms", "repeated call"))):
            places = [place + 0.4 * (index - 0.5) for place in range(len(own))]
            axes.bar(places, [sum(row[name]) for row in own], 0.4, color=COLOURS[index], label=label)
        axes.set_xticks(range(len(own)), [row["backend"] for row in own], rotation=30, ha="right")
        axes.set(title=kind, yscale="log")
        axes.grid(axis="y", alpha=0.3)
    panels[0][0].set(ylabel="milliseconds, all shapes")
    legend_above(figure, panels[0][0], literal(device))
    save(figure, path)


def plot_search(rows: Sequence[Row], device: str, path: Path) -> None:
    """Sentences a second by system, a panel a depth and beam, at the batch size that is best for each."""
    panels = list(dict.fromkeys((row["depth"], row["num_beams"]) for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    size = (9, 0.8 + lines * (0.9 + 0.3 * len(systems)))
    figure, grid = plt.subplots(lines, columns, figsize=size, layout="constrained", sharey=True, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (depth, beams) in zip(grid.flat, panels, strict=False):
        best = [
            max(
                (
                    r["sentences_per_second"]
                    for r in rows
                    if (r["depth"], r["num_beams"], r["system"]) == (depth, beams, s)
                ),
                default=0.0,
            )
            for s in systems
        ]
        axes.barh([*map(literal, systems)], best, color=[COLOURS[n % len(COLOURS)] for n in range(len(systems))])
        for place, speed in enumerate(best):
            axes.text(speed, place, f" {speed:,.0f}", va="center", fontsize=8)
        axes.set(title=f"{depth}, beam {beams}", xlabel="sentences per second", xlim=(0, 1.2 * max(best)))
        axes.grid(axis="x", alpha=0.3)
    grid[0][0].invert_yaxis()
    figure.suptitle(literal(device), fontsize=10)
    save(figure, path)
