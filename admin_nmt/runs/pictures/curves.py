"""Drawing: the pictures of training runs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import mean, median
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from ...hub.run_folder import Results

# Okabe and Ito's colours, which colour-blind readers tell apart, and line styles for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "*", "X", "<", "h", ">")
CROSS = "×: diverged or not finite"
DODGE = 0.03  # between models of one depth, whose marks would hide each other
ROW = 0.2  # inches of a line of the legend
HIGHEST = 20.0  # NLL in nats: the perplexities above would leave the rest of a figure no room
Shape = tuple[int, int]  # layers of the encoder and of the decoder
By = Literal["updates", "tokens", "hours"]  # what stands on the x axis
History = Sequence[Mapping[str, Any]]
LABELS: dict[By, str] = {
    "updates": "updates",
    "tokens": "millions of target tokens",
    "hours": "hours of training, at the run's median speed",
}


def line_style(index: int) -> dict[str, Any]:
    """Colour and style of the line number `index`; the later are thinner, so that an equal one shows below them."""
    width = 2.6 - 0.25 * (index % len(STYLES))
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": STYLES[index % len(STYLES)], "linewidth": width}


def has_speeds(history: History) -> bool:
    """Tell whether the target tokens were logged, and how fast they came."""
    return any(row.get("target_tokens") and row.get("target_tokens_per_second") for row in history)


def positions(history: History, by: By) -> Callable[[float], float]:
    """Place of an update of this run on the x axis.

    Hours are the target tokens up to the update by the run's median speed: what else the machine did for a while, and
    the time of evaluations, do not count.

    Raises:
        ValueError: the history has no target tokens or speeds, as those of early versions.
    """
    if by == "updates":
        return float
    if not has_speeds(history):
        raise ValueError(f"the run logged no target tokens and speeds, so its curve cannot be drawn by {by}")
    rows = [row for row in history if row.get("target_tokens") and row.get("target_tokens_per_second")]
    updates = [0, *(row["step"] for row in rows)]
    tokens = np.cumsum([0, *(row["target_tokens"] for row in rows)])
    unit = 1e6 if by == "tokens" else 3600 * median(row["target_tokens_per_second"] for row in rows)
    return lambda update: float(np.interp(update, updates, tokens)) / unit


def series(history: History, name: str, by: By = "updates") -> tuple[list[float], list[float]]:
    """Places on the x axis where `name` was logged, and its values; NaN for null, as JSON has no NaN."""
    rows, place = [row for row in history if name in row], positions(history, by)
    return [place(row["step"]) for row in rows], [math.nan if row[name] is None else row[name] for row in rows]


def literal(text: str) -> str:
    """Text that matplotlib shows as it is, though there are dollars in it, which would begin a formula."""
    return text.replace("$", r"\$")


def labelled(name: str, runs: Sequence[Results]) -> str:
    """A line's entry in the legend, which says when runs of it diverged: there may be nothing else to see of them."""
    updates = [str(run.diverged.update) for run in runs if run.diverged]
    return literal(f"{name} (diverged at update {', '.join(updates)})" if updates else name)


def plot_curve(history: History, path: Path) -> None:
    """Training and validation NLL, and BLEU where it was measured, of one run."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    crosses = False
    for (name, label), colour in zip((("nll", "training"), ("eval_loss", "validation")), COLOURS, strict=False):
        steps, values = series(history, name)
        if steps:
            axes.plot(
                steps, values, color=colour, label=label, marker="o" if name == "eval_loss" else None, markersize=4
            )
            crosses |= mark_breaks(axes, steps, values, colour)
    axes.set(xlabel="updates", ylabel="NLL (nats per token)", ylim=(0, None))
    steps, values = series(history, "eval_bleu")
    if steps:
        right = axes.twinx()
        right.plot(steps, values, color=COLOURS[2], linestyle="--", marker="s", markersize=4)
        right.set(ylabel="validation BLEU (dashed)", ylim=(0, 100))
    axes.grid(alpha=0.3)
    if axes.lines:
        legend_above(figure, axes, "×: not finite" if crosses else "")
    save(figure, path)


def mark_breaks(
    axes: Axes, steps: Sequence[float], values: Sequence[float], colour: str, diverged_at: float | None = None
) -> bool:
    """Crosses at the last finite value before each gap of values that are not, and before a run diverged.

    Where there is no finite value before, the cross is on the axis.

    Returns:
        Whether there is any cross.
    """
    first = steps[0] if steps else diverged_at or 0
    last: tuple[float, float | None] = (first, None)
    places = []
    for step, value in zip(steps, values, strict=True):
        if math.isfinite(value):
            last = (step, value)
        else:
            places.append(last)
    if diverged_at is not None:
        places.append(last)
    for place in dict.fromkeys(places):
        draw_cross(axes, *place, colour)
    return bool(places)


def draw_cross(axes: Axes, step: float, value: float | None, colour: str) -> None:
    """A cross at a point, or on the axis where there is no value."""
    style: dict[str, Any] = {"marker": "x", "markersize": 10, "markeredgewidth": 2.5, "color": colour, "linestyle": ""}
    transform = axes.transData if value is not None else axes.get_xaxis_transform()
    (cross,) = axes.plot([step], [value or 0.0], clip_on=False, transform=transform, **style)
    cross.set_in_layout(False)


def dots(values: Sequence[float]) -> dict[str, Any]:
    """Style that shows the finite values between two that are not, or the only one: a line alone would hide them."""
    finite = [False, *map(math.isfinite, values), False]
    alone = [i for i in range(len(values)) if finite[i : i + 3] == [False, True, False]]
    return {"marker": ".", "markevery": alone} if alone else {}


def diverged_at(run: Results, by: By) -> float | None:
    """Place on the x axis where a run diverged."""
    return positions(run.history, by)(run.diverged.update) if run.diverged else None


def plot_systems(
    systems: Mapping[str, Sequence[Results]], title: str, path: Path, unigram: float | None = None, by: By = "updates"
) -> None:
    """Training and validation NLL by system: the mean over the seeds, the area from the lowest to the highest seed.

    Args:
        systems: the results.json of every seed of each system.
        unigram: validation NLL of a model of frequencies alone, drawn as a level.
        by: what stands on the x axis.

    Raises:
        ValueError: as for `positions`.
    """
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained", sharey=True)
    crosses = False
    for axes, (name, label) in zip(panels, (("nll", "training"), ("eval_loss", "validation")), strict=True):
        for index, (system, runs) in enumerate(systems.items()):
            style = line_style(index)
            points = band([run.history for run in runs], name, by)
            steps, low, middle, high = list(zip(*points, strict=True)) or ([], [], [], [])
            axes.plot(steps, middle, label=labelled(system, runs), **style, **dots(middle))
            axes.fill_between(steps, low, high, color=style["color"], alpha=0.2, linewidth=0)
            for run in runs:
                crosses |= mark_breaks(axes, *series(run.history, name, by), style["color"], diverged_at(run, by))
        if unigram is not None:
            axes.axhline(unigram, color="grey", linewidth=1, linestyle=":", label="word frequencies alone")
        axes.set(xlabel=LABELS[by], title=label)
        axes.grid(alpha=0.3)
    panels[0].set(ylabel="NLL (nats per token)")
    legend_above(figure, panels[1], literal(title) + (f" ({CROSS})" if crosses else ""))
    save(figure, path)


def legend_above(figure: plt.Figure, axes: Axes, title: str) -> None:
    """One legend for all panels, below the title, in as many columns as fit; the figure grows with its rows."""
    handles, labels = axes.get_legend_handles_labels()
    for columns in range(min(4, len(labels)), 0, -1):
        legend = figure.legend(handles, labels, loc="outside upper center", ncols=columns, title=title, frameon=False)
        if legend.get_window_extent().width <= figure.bbox.width or columns == 1:
            figure.set_figheight(figure.get_figheight() + ROW * max(0, math.ceil(len(labels) / columns) - 2))
            break
        legend.remove()


def band(histories: Sequence[History], name: str, by: By) -> Iterator[tuple[float, float, float, float]]:
    """Points of a band: of each update its mean place on the x axis, and the lowest, mean and highest finite value of
    the runs that got there; NaN where none is finite.
    """
    points = [
        point
        for history in histories
        for point in zip(*series(history, name), series(history, name, by)[0], strict=True)
    ]
    for _, same in groupby(sorted(points, key=itemgetter(0)), key=itemgetter(0)):
        group = list(same)
        values = [value for _, value, _ in group if math.isfinite(value)] or [math.nan]
        yield mean(place for _, _, place in group), min(values), mean(values), max(values)


def perplexity(nll: float) -> float:
    """NaN for one that would leave the rest of the figure no room."""
    return math.exp(nll) if nll <= HIGHEST else math.nan


def plot_perplexity(runs: Mapping[str, Results], title: str, path: Path, by: By = "updates") -> None:
    """Training and validation perplexity of several runs, as in figure 2 of Very Deep Transformers."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained", sharey=True)
    crosses = False
    for axes, (name, label) in zip(panels, (("nll", "training"), ("eval_loss", "validation")), strict=True):
        for index, (run, results) in enumerate(runs.items()):
            steps, values = series(results.history, name, by)
            style, perplexities = line_style(index), [perplexity(value) for value in values]
            axes.plot(steps, perplexities, label=labelled(run, [results]), **style, **dots(perplexities))
            crosses |= mark_breaks(axes, steps, perplexities, style["color"], diverged_at(results, by))
        axes.set(xlabel=LABELS[by], title=label, yscale="log")
        axes.grid(alpha=0.3, which="both")
    panels[0].set(ylabel="perplexity")
    explained = f"{CROSS}, or above $e^{{{HIGHEST:g}}}$" if crosses else ""
    legend_above(figure, panels[1], "\n".join(text for text in (literal(title), explained) if text))
    save(figure, path)


def plot_depths(rows: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Test BLEU by depth, a colour a model, the seeds as points, as in figure 3 of the DLCL paper.

    Lines connect the depths of one stack under the same depth of the other.

    Args:
        rows: `status`, `variant`, `encoder_layers`, `decoder_layers` and `bleu` of each run, and `line`, what the runs
            of a line have in common, if not the variant; those that finished without a test set are left out.
    """
    rows = [row for row in rows if row["status"] == "diverged" or row["bleu"] is not None]
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    shapes = sorted({shape_of(row) for row in rows}, key=lambda shape: (sum(shape), shape))
    lines = [row.get("line") or row["variant"] for row in rows]
    names = list(dict.fromkeys(lines))
    for index, line in enumerate(names):
        style, marker = line_style(index), MARKERS[index % len(MARKERS)]
        place_of = {shape: place + DODGE * (index - (len(names) - 1) / 2) for place, shape in enumerate(shapes)}
        points = sorted(
            (place_of[shape_of(row)], math.nan if row["bleu"] is None else row["bleu"])
            for row, own in zip(rows, lines, strict=True)
            if own == line
        )
        scores = {place: [b for _, b in group if not math.isnan(b)] for place, group in groupby(points, itemgetter(0))}
        means = {place: mean(seeds) for place, seeds in scores.items() if seeds}
        for number, chain in enumerate(chains([shape for shape in shapes if place_of[shape] in means])):
            places = [place_of[shape] for shape in chain]
            label = literal(line) if number == 0 else None
            axes.plot(places, [means[place] for place in places], label=label, marker=marker, markersize=6, **style)
        axes.plot(*zip(*points, strict=True), ".", color=style["color"], alpha=0.5)
        for place in {place for place, bleu in points if math.isnan(bleu)}:
            draw_cross(axes, place, 0.0, style["color"])
    axes.set(xlabel="encoder-decoder layers", ylabel="test BLEU", title=literal(title))
    low, high = axes.get_ylim()
    if low < high / 2:  # where all scores are close together, an axis from 0 would hide how they differ
        axes.set_ylim(0)
    axes.set_xticks(range(len(shapes)), [f"{encoder}-{decoder}" for encoder, decoder in shapes])
    axes.set_xlim(-0.5, len(shapes) - 0.5)
    axes.grid(alpha=0.3)
    legend_above(figure, axes, "×: diverged" if any(row["status"] == "diverged" for row in rows) else "")
    save(figure, path)


def chains(shapes: Sequence[Shape]) -> list[list[Shape]]:
    """Shapes that a line connects: those with one stack's depth in common; alone the others, all if no pair has one."""
    groups = [
        [shape for shape in shapes if shape[stack] == depth]
        for stack in (1, 0)
        for depth in sorted({shape[stack] for shape in shapes})
    ]
    pairs = [group for group in groups if len(group) > 1]
    connected = {shape for group in pairs for shape in group}
    return pairs + [[shape] for shape in shapes if shape not in connected] if pairs else [list(shapes)]


def shape_of(row: Mapping[str, Any]) -> Shape:
    return row["encoder_layers"], row["decoder_layers"]


def save(figure: plt.Figure, path: Path) -> None:
    """Write a picture and forget it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
