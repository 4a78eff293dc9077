"""Pictures of a comparison, each as PNG and SVG."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib import rc_context

from ..metrics.comparison import Buckets, Comparison
from ..metrics.significance import Difference
from ..runs.pictures.curves import COLOURS, MARKERS, literal, save

WIDTH = 7.5  # inches
LEAST = 10  # words or sentences of a bucket that is drawn
ABOVE: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 9} | {
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
}
MARK_COLOURS = {"+": COLOURS[0], "=": "#D9D9D9", "−": COLOURS[1]}
LINE_COLOURS = MARK_COLOURS | {"=": "#777777"}


PICTURES = {
    "scores": "BLEU of every system with its 95% confidence interval",
    "significance": "BLEU of the row minus BLEU of the column, better (+) or worse (−) at p < 0.05",
    "word_accuracy": "F1 of words by their frequency in the training text",
    "bleu_by_length": "BLEU by the length of the reference",
}


def plot_comparison(comparison: Comparison, folder: Path) -> None:
    """Draw those of [`PICTURES`] that the comparison has something for."""
    plot_scores(comparison, folder / "scores.png")
    if len(comparison.systems) > 1:
        plot_matrix(list(comparison.systems), comparison.matrices["BLEU"], folder / "significance.png")
    if comparison.accuracy:
        axis = "times in the training text (in brackets: words of the references)"
        plot_buckets(comparison.accuracy, axis, "word F1 (%)", folder / "word_accuracy.png")
    axis = "tokens of the reference (in brackets: sentences)"
    plot_buckets(comparison.lengths, axis, "BLEU", folder / "bleu_by_length.png")


def plot_scores(comparison: Comparison, path: Path) -> None:
    """BLEU of every system with its confidence interval, a tick for each run; a dashed line through the baseline."""
    systems = list(comparison.systems)
    tested = comparison.against["BLEU"]
    figure, axes = plt.subplots(figsize=(WIDTH, 1.1 + 0.42 * len(systems)), layout="constrained")
    axes.axvline(tested[comparison.baseline].score, color="#666666", linestyle="--", linewidth=1, zorder=0)
    for row, name in enumerate(systems):
        one = tested[name]
        colour = COLOURS[-1] if name == comparison.baseline else LINE_COLOURS[one.mark]
        axes.errorbar(one.score, row, xerr=one.interval, fmt="o", color=colour, capsize=4, markersize=7, linewidth=1.8)
        if comparison.runs[name] > 1:
            scores = comparison.run_scores["BLEU"][name]
            axes.plot(scores, [row + 0.22] * len(scores), "|", color=colour, markersize=8, markeredgewidth=1.4)
        axes.annotate(f"{one.score:.2f}", (one.score, row), (0, 7), **ABOVE)
    marks = {name: " (baseline)" if name == comparison.baseline else f"  {tested[name].mark}" for name in systems}
    labels = [literal(name) + mark for name, mark in marks.items()]
    axes.set_yticks(range(len(systems)), labels)
    ticks = "; ticks: runs" if max(comparison.runs.values()) > 1 else ""
    axes.set(xlabel=f"BLEU, with its 95% confidence interval{ticks}", ylim=(len(systems) - 0.5, -0.7))
    axes.grid(axis="x", alpha=0.3)
    save_both(figure, path)


def plot_matrix(names: Sequence[str], matrix: Mapping[tuple[str, str], Difference], path: Path) -> None:
    """Mark, colour and difference in points of each system (row) against each (column)."""
    side = 0.8 * len(names)
    figure, axes = plt.subplots(figsize=(max(WIDTH, side + 2), 0.6 * len(names) + 1.6), layout="constrained")
    for x, column in enumerate(names):
        for y, row in enumerate(names):
            one = matrix[row, column]
            axes.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=MARK_COLOURS[one.mark], edgecolor="white"))
            colour = "black" if one.mark == "=" else "white"
            axes.text(x, y - 0.12, one.mark, ha="center", va="center", fontsize=14, color=colour)
            points = f"{one.points:+.2f}".replace("-", "−") if one.points else "0.00"
            axes.text(x, y + 0.22, points, ha="center", va="center", fontsize=9, color=colour)
    tilted = max(map(len, names)) > 9
    labels = [*map(literal, names)]
    axes.set_xticks(range(len(names)), labels, rotation=30 * tilted, ha="right" if tilted else "center")
    axes.set_yticks(range(len(names)), labels)
    axes.set(xlim=(-0.5, len(names) - 0.5), ylim=(len(names) - 0.5, -0.5))
    axes.set_title("BLEU of the row minus BLEU of the column\n+ better, − worse at p < 0.05, = neither", fontsize=11)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    save_both(figure, path)


def plot_buckets(buckets: Buckets, xlabel: str, ylabel: str, path: Path) -> None:
    """A measure of every system over buckets, without those that hold too little to say anything.

    The marks of a bucket stand beside each other, so that equal systems do not hide each other. No lines join them:
    where a measure rises steeply, the line of a system whose marks stand further right would run below the others.
    """
    least = max(1, min(LEAST, max(buckets.counts)))
    kept = [index for index, count in enumerate(buckets.counts) if count >= least]
    systems = len(buckets.values)
    rows = ceil(systems / max(1, min(4, 88 // (max(map(len, buckets.values)) + 8))))  # of the legend, by its letters
    figure, axes = plt.subplots(figsize=(WIDTH, 3.8 + 0.2 * rows), layout="constrained")
    for number, (name, values) in enumerate(buckets.values.items()):
        offset = 0.5 * ((number + 0.5) / systems - 0.5)
        axes.plot(
            [place + offset for place in range(len(kept))],
            [float(values[index] or 0) for index in kept],
            label=literal(name),
            color=COLOURS[number % len(COLOURS)],
            linestyle="none",
            marker=MARKERS[number % len(MARKERS)],
            markersize=7,
        )
    axes.set_xticks(range(len(kept)), [f"{buckets.labels[i]}\n({buckets.counts[i]:,})" for i in kept])
    axes.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=ceil(systems / rows), frameon=False)
    save_both(figure, path)


def save_both(figure: plt.Figure, path: Path) -> None:
    """As PNG and as an SVG of the same bytes for the same picture."""
    with rc_context({"svg.hashsalt": "admin_nmt"}):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    save(figure, path)
