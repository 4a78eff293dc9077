"""Pictures of training runs."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Okabe and Ito's colours, which colour-blind readers tell apart, and line styles for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
History = Sequence[Mapping[str, Any]]


def series(history: History, name: str) -> tuple[list[int], list[float]]:
    """The updates at which `name` was logged, and its values."""
    rows = [row for row in history if name in row]
    return [row["step"] for row in rows], [row[name] for row in rows]


def plot_curve(history: History, path: Path) -> None:
    """Training and validation NLL, and BLEU where it was measured, of one run."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, label), colour in zip((("nll", "training"), ("eval_loss", "validation")), COLOURS, strict=False):
        steps, values = series(history, name)
        if steps:
            axes.plot(
                steps, values, color=colour, label=label, marker="o" if name == "eval_loss" else None, markersize=4
            )
    axes.set(xlabel="updates", ylabel="NLL (nats per token)", ylim=(0, None))
    steps, values = series(history, "eval_bleu")
    if steps:
        right = axes.twinx()
        right.plot(steps, values, color=COLOURS[2], linestyle="--", marker="s", markersize=4)
        right.set(ylabel="validation BLEU (dashed)", ylim=(0, 100))
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(loc="upper right")
    save(figure, path)


def plot_runs(
    runs: Mapping[str, History], name: str, ylabel: str, title: str, path: Path, diverged: Collection[str] = ()
) -> None:
    """The logged value `name` of several runs over updates; those that diverged end in a cross."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for index, (run, history) in enumerate(runs.items()):
        steps, values = series(history, name)
        style = {"color": COLOURS[index % len(COLOURS)], "linestyle": STYLES[index % len(STYLES)]}
        axes.plot(steps, values, label=run, linewidth=1.8, **style)
        if run in diverged and steps:
            axes.plot(steps[-1:], values[-1:], marker="x", markersize=9, color=style["color"])
    axes.set(xlabel="updates", ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def save(figure: plt.Figure, path: Path) -> None:
    """Write a picture and forget it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
