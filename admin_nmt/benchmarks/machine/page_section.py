"""What the sections of a machine's page have in common: ratios of a round, their range, and paragraphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from textwrap import fill
from typing import Any

from .part_runner import Results

Rounds = Sequence[Mapping[str, float]]


@dataclass
class Section:
    """A part on the page.

    Args:
        title: of the section.
        text: Markdown: what the rows mean, tables, pictures.
        rows: of the index, which has the machines beside each other: by name a ratio.
    """

    title: str
    text: str
    rows: dict[str, str] = field(default_factory=dict)


def spread(ratios: Sequence[float]) -> str:
    """The median, and the lowest and highest if there are several; a dash where there is none."""
    if not ratios:
        return "–"
    middle = f"{median(ratios):.2f}"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f}–{max(ratios):.2f})"


def ratios(rounds: Rounds, system: str, base: str) -> list[float]:
    """Of each round: its system's rate beside its base's, so that what slows a whole round does not count."""
    return [one[system] / one[base] for one in rounds if one.get(base) and system in one]


def paragraph(text: str) -> str:
    """Text in lines of one width, however long what was put into it is."""
    return fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def rounds_of(results: Results) -> dict[str, list[Any]]:
    """The values of all rounds, by what they are of: the name of a case up to its comma."""
    found: dict[str, list[Any]] = {}
    for name, case in results.cases.items():
        found.setdefault(name.partition(",")[0], []).append(case["value"])
    return found


def of_systems(systems: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, float]:
    """One number of each system."""
    return {system: one[key] for system, one in systems.items()}
