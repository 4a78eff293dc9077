"""Tests of significance: a system's score against another's on one test set."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from ..system.terminal import progress_bar
from .meteor import Meteor
from .scores import References, bleu_of, moses_tokenizer, reference_columns

LEVEL = 0.05
IN_MATRICES = ("BLEU", "chrF")  # the other metrics are slow: they are tested against the baseline alone
Item = TypeVar("Item")
Systems = Mapping[str, Sequence[str]]
Runs = Sequence[Sequence[str]]
"""The translations of each training run of a system, a line a sentence."""


@dataclass(frozen=True)
class Difference:
    """Difference of a system's score from another's.

    Attributes:
        points: its score minus the other's.
        p: how often chance alone would do as much; see `paired_bootstrap`.
        score: its own score.
        interval: half the width of its 95% confidence interval.
        lower_is_better: as for TER.
        s_opt: the standard deviation of the score over the training runs; None for a single one.
        s_sel: the standard deviation of the score over bootstrap samples of the test set, where it was asked for.
    """

    points: float
    p: float
    score: float
    interval: float
    lower_is_better: bool = False
    s_opt: float | None = None
    s_sel: float | None = None

    @property
    def mark(self) -> str:
        """ "+" for significantly better than the other system at p < 0.05, "−" for worse, "=" for neither."""
        if self.p >= LEVEL:
            return "="
        return "+" if (self.points > 0) != self.lower_is_better else "−"


@dataclass(frozen=True)
class Tests:
    """Tests of each system against the baseline and against each.

    Attributes:
        against: by metric, each system against the baseline.
        matrices: by metric, each system (row) against each (column).
        signatures: of these tests, by metric.
        run_scores: by metric and system, the score of each training run.
    """

    against: dict[str, dict[str, Difference]]
    matrices: dict[str, dict[tuple[str, str], Difference]]
    signatures: dict[str, str]
    run_scores: dict[str, dict[str, list[float]]]


def progress_over(items: Iterable[Item], what: str, progress: bool) -> Iterable[Item]:
    """The items, with a bar on stderr where progress is wanted, but not in a log file."""
    return progress_bar(items, desc=what, unit="step", shown=progress)


def significance_metrics(language: str | None = None) -> dict[str, Metric]:
    """The metrics that are tested, with the settings of `admin_nmt.metrics.scores`; METEOR if the language is known."""
    metrics: dict[str, Metric] = {"BLEU": bleu_of(language), "chrF": CHRF(), "TER": TER()}
    if language is not None:
        meteor = Meteor(language, moses_tokenizer(language))
        metrics[meteor.name] = meteor
    return metrics


def paired_bootstrap(systems: Systems, references: References, metric: Metric) -> tuple[dict[str, Difference], str]:
    """Test every system against the first one by sacreBLEU's paired bootstrap of 1,000 samples (Koehn 2004).

    The seed is sacreBLEU's: 12345, or what the environment variable SACREBLEU_SEED says. p is sacreBLEU's too: as it
    centres the absolute differences of the samples, it is about that of a one-sided test. It differs where sacreBLEU
    gives the smallest p there is without evidence: for equal scores p is 1, and for few lines see `smallest_p`.

    Returns:
        The differences, and the signature of the test.
    """
    columns = reference_columns(references)
    test = PairedTest(list(systems.items()), {"metric": metric}, columns, test_type="bs")
    signatures, results = test()
    ((label, signature),) = signatures.items()
    scores: list[Any] = results[label]
    first = next(iter(systems.values()))
    differences = {}
    for name, result in zip(systems, scores, strict=True):
        points = float(result.score - scores[0].score)
        p = 1.0 if points == 0 else max(float(result.p_value), smallest_p(systems[name], first, columns))
        differences[name] = Difference(points, p, float(result.score), float(result.ci), isinstance(metric, TER))
    return differences, str(signature)


def smallest_p(first: Sequence[str], second: Sequence[str], columns: Sequence[Sequence[str]]) -> float:
    """Probability that all the lines at which two systems differ favour one of them by chance; no test can tell more.

    That is 2⁻ⁿ for n different lines, so fewer than five are never significant. The bootstrap does not know this: its
    samples of a single sentence are all equal, which it takes for certainty.
    """
    lines = zip(first, second, *columns, strict=True)
    return 0.5 ** len({line for line in lines if line[0] != line[1]})


def significance_matrix(systems: Systems, references: References, metric: Metric) -> dict[tuple[str, str], Difference]:
    """Test every system (row) against every system (column) and itself, as in table 3 of Liu, Duh et al. 2020."""
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


def bootstrap_tests(
    systems: Mapping[str, Runs], references: References, baseline: str, language: str, progress: bool
) -> Tests:
    """Test systems with one run each, by sacreBLEU's paired bootstrap."""
    only, metrics = {name: runs[0] for name, runs in systems.items()}, significance_metrics(language)
    ordered = {baseline: only[baseline]} | only
    tests = {
        name: paired_bootstrap(ordered, references, metric)
        for name, metric in progress_over(metrics.items(), "against the baseline", progress)
    }
    matrices = {
        name: significance_matrix(only, references, metrics[name])
        for name in progress_over(IN_MATRICES, "each against each", progress)
    }
    against = {name: {system: test[system] for system in only} for name, (test, _) in tests.items()}
    return Tests(
        against,
        matrices,
        signatures={name: signature for name, (_, signature) in tests.items()},
        run_scores={name: {system: [one.score] for system, one in test.items()} for name, test in against.items()},
    )
