"""The section of a machine's page on the growth of cost: a picture and a table of each size that grows."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ...system.markdown import table_text
from ..growth_plots import Growth, plot_growth
from . import growth
from .page_section import Section, paragraph, rounds_of, spread
from .part_runner import Results

IDEALS = {True: "ideal: time as\nthe operations", False: "ideal: as the\nsmallest batch"}  # by `by_flops` of the axis
MILLION = 1_000_000  # pairs, at whose speed the ideal of planning is
PAIRS = "pairs"  # the case that is no training


def growing(results: Results) -> Section:
    """All sizes."""
    parts, index = [about_growth(results)], {}
    for name, rounds in rounds_of(results).items():
        rows, head, relative = planning_rows(rounds[0]["growth"]) if name == PAIRS else axis_rows(results, name, rounds)
        if name == PAIRS:
            parts.append(about_pairs(results))
        parts += [f"![cost by {name}]({picture(name)})", table_text(head, rows)]
        index[f"growth, {name} {rows[0][0]} to {rows[-1][0]}: measured / ideal"] = relative
    return Section("Growth", "\n\n".join(parts), index)


def axis_rows(results: Results, name: str, rounds: Sequence[Any]) -> tuple[list[list[str]], list[str], str]:
    """The table of an axis with its head, and what the largest reaches of the ideal."""
    axis, speeds, table = results.settings[name], growth.relative(rounds), []
    for number, (size, ratios) in enumerate(zip(axis["values"], speeds, strict=True)):
        row = rounds[-1][number]
        speed = median(rows[number]["tokens_per_second"] for rows in rounds)
        own = [spread(ratios), f"{row['ideal']:.2f}", f"{median(ratios) / row['ideal']:.2f}"]
        table.append([f"{size:,}", *own, f"{speed:,.0f}", f"{row['precision']}, {row['attention']}"])
    head = [axis["label"], "speed, times the smallest's", "ideal", "measured / ideal", "target tokens a second"]
    return table, [*head, "precision, attention"], table[-1][3]


def reference(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The plan nearest to a million pairs: smaller ones take hardly more than their start."""
    return min(rows, key=lambda row: abs(math.log(row["pairs"] / MILLION)))


def planning_rows(rows: Sequence[Mapping[str, Any]]) -> tuple[list[list[str]], list[str], str]:
    """The table of planning with its head, and what the largest reaches of the ideal."""
    base, table = reference(rows), []
    for row in rows:
        share = row["pairs"] / base["pairs"]
        speed = f"{base['seconds'] * share / row['seconds']:.2f}" if row["seconds"] else "–"
        held = f"{row['peak_mb'] / base['peak_mb'] / share:.2f}" if base["peak_mb"] else "–"
        table.append([f"{row['pairs']:,}", speed, f"{row['seconds']:.2f}", held, f"{row['peak_mb']:,.0f}"])
    count = f"{base['pairs']:,}"
    head = [
        "pairs",
        f"pairs a second, times those of {count}",
        "seconds",
        f"memory a pair, times that of {count}",
        "MB",
    ]
    return table, head, table[-1][1]


def picture(name: str) -> str:
    """The file of a size's picture."""
    return f"growth-{name}.png"


def draw_growth(results: Results, folder: Path) -> None:
    """A picture of each size that grows; points and bars are relative to the smallest's median speed."""
    for name, rounds in rounds_of(results).items():
        if name == PAIRS:
            draw_planning(rounds[0]["growth"], folder / picture(name))
            continue
        axis, speeds = results.settings[name], growth.relative(rounds)
        first = median(rows[0]["tokens_per_second"] for rows in rounds)
        low, middle, high = ([first * function(own) for own in speeds] for function in (min, median, max))
        ideal = [first * row["ideal"] for row in rounds[-1]]
        panel = Growth(axis["label"], "target tokens a second", axis["values"], middle, ideal, low, high)
        panel.ideal_name = IDEALS[axis["by_flops"]]
        plot_growth([panel], f"Training by {name}", folder / picture(name))


def about_growth(results: Results) -> str:
    """What was trained, and what the dashed lines are."""
    base = growth.Point(**results.settings["depth"]["base"])
    return paragraph(f"""Updates of `AdminTrainer` after a first one, ADMIN with the closed form of ω, Adam, sentences
        of {growth.LENGTH} tokens, precision and attention as the package chooses. One size
        grows at a time from {base.encoder_layers}-{base.decoder_layers} layers, width {base.width},
        {base.vocabulary:,} words and {base.batch:,} tokens a batch. The bars are the range over the rounds, each
        relative to its own smallest point. Dashed is the ideal: that time grows with the floating-point operations of
        the model's products of matrices, from the smallest point on; for the batch, that tokens a second stay those of
        the smallest. A point above it uses the processor better than the smallest does.""")


def about_pairs(results: Results) -> str:
    """What was planned, and what the dashed lines are."""
    tokens, corpus = results.settings[PAIRS]["max_tokens"], results.settings["corpus"]
    return paragraph(f"""The batches of an epoch by the number of pairs, {tokens:,} tokens a batch, lengths drawn from
        those of {corpus}, planned and not trained. Dashed is the ideal: that time and memory grow with the pairs, at
        the rate of a million.""")


def draw_planning(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Time and memory of planning, each beside its ideal."""
    base, sizes = reference(rows), [row["pairs"] for row in rows]
    panels = []
    for key, label in (("seconds", "seconds"), ("peak_mb", "peak memory, MB")):
        values = [max(row[key], 1e-3) for row in rows]  # a memory of 0 has no place on this scale
        ideal = [max(base[key], 1e-3) * size / base["pairs"] for size in sizes]
        panels.append(Growth("pairs", label, sizes, values, ideal, ideal_name="ideal:\nas the pairs", dense=False))
    plot_growth(panels, "Planning the batches of an epoch", path)
