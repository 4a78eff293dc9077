"""Usual scores of a model's translations, by which sentences are found that are unlike its training text.

A run translates a part of its validation set and writes mean, standard deviation and a low quantile of the
log-probability a token to `validation_scores.json`, a file that travels with the model's folder. A translation that
scores [`DEVIATIONS`] standard deviations below the mean and below the quantile is one that hardly any validation
sentence has; the quantile is for models that repeat themselves on some, whose scores have a long tail.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from textwrap import shorten
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..system.files import write_text_whole
from .worker_processes import InOrder, Lines, Parts

logger = logging.getLogger(__name__)

FILE = "validation_scores.json"
DEVIATIONS = 3.5
LOW = 0.005  # the quantile
FEWEST = 50  # validation sentences, below which a spread says little


class UsualScores(BaseModel):
    """Log-probabilities a token, end of sentence included, of the best translations of validation sentences."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    sentences: int = Field(ge=FEWEST)
    mean: float = Field(le=0)
    deviation: float = Field(ge=0)
    low: float

    @classmethod
    def of(cls, scores: Sequence[float]) -> Self | None:
        """The record of these scores; None where they are too few."""
        if len(scores) < FEWEST:
            return None
        mean, low = min(fmean(scores), 0.0), sorted(scores)[int(LOW * len(scores))]
        return cls(sentences=len(scores), mean=mean, deviation=pstdev(scores), low=low)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """The record of a run in the folder of a model; None where there is none."""
        try:
            return cls.model_validate_json((folder / FILE).read_bytes())
        except (OSError, ValidationError):  # a model of another origin may have any file of that name
            return None

    def save(self, folder: Path) -> None:
        """Write the record into the folder of a model."""
        write_text_whole(folder / FILE, self.model_dump_json(indent=2) + "\n")

    def is_unusual(self, log_prob: float, tokens: int) -> bool:
        """Tell whether hardly any validation sentence has a translation of so low a score a token."""
        score = score_per_token(log_prob, tokens)
        return score < min(self.mean - DEVIATIONS * self.deviation, self.low)


def score_per_token(log_prob: float, tokens: int) -> float:
    """The log-probability of a translation over its tokens and the end of sentence."""
    return log_prob / (tokens + 1)


@dataclass
class Unusual:
    """Counts the sentences with unusually low scores among all that were translated, and keeps the first."""

    total: int = 0
    count: int = 0
    first: str = ""

    def join(self, later: "Unusual") -> None:
        """Add those of a later part of the text."""
        self.first = self.first or later.first
        self.count += later.count
        self.total += later.total

    def message(self) -> str:
        """One line on all of them."""
        return (
            f"{self.count} of {self.total} sentences score far below this model's validation text: they are probably "
            "unlike what it was trained on, and translated wrongly; the first: "
            + shorten(self.first, 80, placeholder="…")
        )

    def warn(self) -> None:
        """Say it in the log; nothing where there are none."""
        if self.count:
            logger.warning("%s", self.message())


class TranslatedLines(list[str]):
    """Translations of some lines, and the unusual sentences among these; a process can send it to another."""

    def __init__(self, lines: Iterable[str], unusual: Unusual) -> None:
        super().__init__(lines)
        self.unusual = unusual


def with_unusual(translator: Any, write: Callable[[Lines], Iterable[str]]) -> Callable[[Lines], TranslatedLines]:
    """A function that gives what `write` does, with the unusual sentences that `translator` meets meanwhile."""

    def translated(lines: Lines) -> TranslatedLines:
        unusual = Unusual()
        translator.report = unusual.join
        return TranslatedLines(write(lines), unusual)

    return translated


def add_up_unusual(in_order: InOrder, unusual: Unusual) -> InOrder:
    """A function that gives chunks as `in_order` does, and adds up their unusual sentences."""

    def parts(chunks: Iterable[Lines]) -> Parts:
        for lines, translated in in_order(chunks):
            if isinstance(translated, TranslatedLines):
                unusual.join(translated.unusual)
            yield lines, translated

    return parts
