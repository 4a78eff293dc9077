"""Tests of significance: a system's score against another's on one test set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from .scores import bleu_of

LEVEL = 0.05
Systems = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Difference:
    """A system's score against another's.

    Attributes:
        points: its score minus the other's.
        p: how often chance alone would do as much; see `paired_bootstrap`.
        score: its own score.
        interval: half the width of its 95% confidence interval.
        lower_is_better: as for TER.
    """

    points: float
    p: float
    score: float
    interval: float
    lower_is_better: bool = False

    @property
    def mark(self) -> str:
        """ "+" for significantly better than the other system at p < 0.05, "−" for worse, "=" for neither."""
        if self.p >= LEVEL:
            return "="
        return "+" if (self.points > 0) != self.lower_is_better else "−"


def significance_metrics(language: str | None = None) -> dict[str, Metric]:
    """The metrics that have a paired bootstrap, with the settings of `admin_nmt.metrics.scores.corpus_scores`."""
    return {"BLEU": bleu_of(language), "chrF": CHRF(), "TER": TER()}


def paired_bootstrap(systems: Systems, references: Sequence[str], metric: Metric) -> tuple[dict[str, Difference], str]:
    """Every system against the first one, by sacreBLEU's paired bootstrap of 1,000 samples (Koehn 2004).

    The seed is sacreBLEU's: 12345, or what the environment variable SACREBLEU_SEED says. p is sacreBLEU's too: as it
    centres the absolute differences of the samples, it is about that of a one-sided test. It differs where sacreBLEU
    gives the smallest p there is without evidence: for equal scores p is 1, and for few lines see `smallest_p`.

    Returns:
        The differences, and the signature of the test.
    """
    test = PairedTest(list(systems.items()), {"metric": metric}, [references], test_type="bs")
    signatures, results = test()
    ((label, signature),) = signatures.items()
    scores: list[Any] = results[label]
    first = next(iter(systems.values()))
    differences = {}
    for name, result in zip(systems, scores, strict=True):
        points = float(result.score - scores[0].score)
        p = 1.0 if points == 0 else max(float(result.p_value), smallest_p(systems[name], first, references))
        differences[name] = Difference(points, p, float(result.score), float(result.ci), isinstance(metric, TER))
    return differences, str(signature)


def smallest_p(first: Sequence[str], second: Sequence[str], references: Sequence[str]) -> float:
    """How often all the lines at which two systems differ favour one of them by chance alone; no test can tell more.

    That is 2⁻ⁿ for n different lines, so fewer than five are never significant. The bootstrap does not know this: its
    samples of a single sentence are all equal, which it takes for certainty.
    """
    lines = zip(first, second, references, strict=True)
    return 0.5 ** len({line for line in lines if line[0] != line[1]})


def significance_matrix(
    systems: Systems, references: Sequence[str], metric: Metric
) -> dict[tuple[str, str], Difference]:
    """Every system (row) against every system (column), as in table 3 of Liu et al. 2020, and against itself."""
    names = list(systems)
    matrix = {}
    for index, column in enumerate(names):
        against, _ = paired_bootstrap({name: systems[name] for name in names[index:]}, references, metric)
        itself = against[column]
        for row, one in against.items():
            matrix[column, row] = Difference(
                0.0 - one.points, one.p, itself.score, itself.interval, one.lower_is_better
            )
            matrix[row, column] = one
    return {(row, column): matrix[row, column] for row in names for column in names}
