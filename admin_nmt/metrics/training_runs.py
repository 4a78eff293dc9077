"""Systems that were trained several times, compared as Clark et al. 2011 do, and their program MultEval.

A model trained with another seed translates otherwise, so that a difference between two models may be one between two
seeds. Here a system is all of its runs: its score is their mean, and a test looks at the translations of all of them.

MultEval exchanges the translations of the k-th runs of two systems alone, so that its p depends on the order of the
runs, and they must be as many. Here all runs of both systems are one pool, which is what its comments describe; of
single runs both are the usual approximate randomisation. The standard deviations are MultEval's.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import estimate_ci

from .scores import References, reference_columns
from .significance import IN_MATRICES, Difference, Runs, Tests, progress_over, significance_metrics

TRIALS = 10_000  # of the approximate randomisation, as in MultEval
SAMPLES = 1_000  # of the bootstrap, as in sacreBLEU
BLOCK = 4_000_000  # translations that are assigned at a time

Numbers = npt.NDArray[np.float64]


class RunTests:
    """The differences between systems over all of their runs, in every metric.

    Args:
        systems: the runs of each system by its name, as many as there are; their order makes no difference.
        references: of each sentence, or a list of references of each.
        metrics: by what they are called.

    Attributes:
        signatures: by metric, what it and the tests depend on.
        scores: by metric and system, the score of each run.
    """

    def __init__(self, systems: Mapping[str, Runs], references: References, metrics: Mapping[str, Metric]) -> None:
        columns, seed = reference_columns(references), os.environ.get("SACREBLEU_SEED", "12345").lower()
        self._metrics, self._seed = metrics, None if seed == "none" else int(seed)
        self._statistics = {name: [self._of_run(lines, columns) for lines in runs] for name, runs in systems.items()}
        self._run_scores = {
            name: self._scores(np.stack([run.sum(0) for run in runs])) for name, runs in self._statistics.items()
        }
        self.scores = {
            metric: {name: scores[row].tolist() for name, scores in self._run_scores.items()}
            for row, metric in enumerate(metrics)
        }
        self.signatures = {}
        for name, metric in metrics.items():
            signature = metric.get_signature()
            for key, value in (("ar", TRIALS), ("bs", SAMPLES), ("seed", seed)):
                signature.update(key, value)
            self.signatures[name] = str(signature)
        self._sampling = {name: self._bootstrap(name) for name in systems}
        self._p: dict[tuple[str, ...], Numbers] = {}

    def difference(self, system: str, baseline: str) -> dict[str, Difference]:
        """Difference of a system from another, by metric: that of their means over the runs, and its p.

        p is how often approximate randomisation (`exchanged`) gives the two a difference as large as theirs, in either
        direction, both scored on the translations of all their runs together.
        """
        pair = tuple(sorted((system, baseline)))
        if pair not in self._p:
            self._p[pair] = np.ones(len(self._metrics)) if system == baseline else self._exchange(*pair)
        mine, other, several = self._run_scores[system], self._run_scores[baseline], len(self._statistics[system]) > 1
        means, deviations = mine.mean(1), mine.std(1, ddof=1) if several else [None] * len(mine)
        columns = (means - other.mean(1), self._p[pair], means, *self._sampling[system], deviations)
        return {
            name: Difference(
                points=float(points),
                p=float(p),
                score=float(mean),
                interval=float(interval),
                lower_is_better=isinstance(metric, TER),
                s_sel=float(s_sel),
                s_opt=None if s_opt is None else float(s_opt),
            )
            for (name, metric), points, p, mean, interval, s_sel, s_opt in zip(
                self._metrics.items(), *columns, strict=True
            )
        }

    def _of_run(self, lines: Sequence[str], columns: Sequence[Sequence[str]]) -> Numbers:
        """The statistics of each sentence in every metric, side by side: [sentences, statistics]."""
        tables = [np.array(one._extract_corpus_statistics(lines, columns), float) for one in self._metrics.values()]
        self._ends = np.cumsum([table.shape[1] for table in tables])
        return np.hstack(tables)

    def _scores(self, totals: Numbers) -> Numbers:
        """The scores [metrics, rows] of sums over sentences [rows, statistics]."""
        parts = np.split(totals, self._ends[:-1], axis=1)
        return np.array(
            [
                [metric._compute_score_from_stats(row).score for row in part]
                for metric, part in zip(self._metrics.values(), parts, strict=True)
            ]
        )

    def _bootstrap(self, name: str) -> tuple[Numbers, Numbers]:
        """Half the 95% interval [metrics] and the standard deviation [metrics] of a run's score, means over the runs.

        They say what another choice of test sentences does to the score.
        """
        runs = self._statistics[name]
        sentences = len(runs[0])
        drawn = np.random.default_rng(self._seed).choice(sentences, (SAMPLES, sentences))
        weights = np.stack([np.bincount(sample, minlength=sentences) for sample in drawn]).astype(float)
        samples = [self._scores(weights @ run) for run in runs]  # each [metrics, samples]
        intervals = [[estimate_ci(scores)[1] for scores in run] for run in samples]
        return np.mean(intervals, axis=0), np.mean([run.std(1, ddof=1) for run in samples], axis=0)

    def _exchange(self, first: str, second: str) -> Numbers:
        """p [metrics] of the difference between two systems."""
        ours, theirs = (sorted(self._statistics[name], key=np.ndarray.tobytes) for name in (first, second))
        table = np.stack(ours + theirs, axis=1)  # [sentences, runs, statistics], p the same for runs in any order
        sentences, runs, _ = table.shape
        table = table.reshape(sentences * runs, -1)
        everything, rng = table.sum(0), np.random.default_rng(self._seed)

        def distances(totals: Numbers) -> Numbers:
            return np.abs(self._scores(totals) - self._scores(everything - totals))

        observed = distances(np.sum(ours, axis=(0, 1))[None])
        as_large, size = np.zeros(len(observed)), max(1, BLOCK // len(table))
        for start in range(0, TRIALS, size):
            taken = exchanged(rng, min(size, TRIALS - start), sentences, runs, len(ours))
            totals = taken.reshape(len(taken), -1).astype(float) @ table
            # As large, not larger as in MultEval, so that a system does not differ from itself.
            as_large += (distances(totals) >= observed - 1e-9).sum(1)
        return (as_large + 1) / (TRIALS + 1)


def exchanged(rng: np.random.Generator, trials: int, sentences: int, runs: int, ours: int) -> npt.NDArray[np.bool_]:
    """Choose which translations of each sentence, by the runs of two systems together, go to the first system.

    Any `ours` of the `runs` translations are equally likely, in every trial and for every sentence: by the hypothesis
    that the systems do not differ, it makes no difference which run of which system gave a translation.

    Returns:
        [trials, sentences, runs]
    """
    left = np.full((trials, sentences), ours)
    taken = np.empty((trials, sentences, runs), bool)
    for run in range(runs):
        taken[..., run] = rng.random((trials, sentences), np.float32) * (runs - run) < left
        left -= taken[..., run]
    return taken


def run_tests(
    systems: Mapping[str, Runs], references: References, baseline: str, language: str, progress: bool
) -> Tests:
    """Test systems of which one or more have several runs, by approximate randomisation over all of them."""
    tests = RunTests(systems, references, significance_metrics(language))
    pairs = {
        (row, column): tests.difference(row, column)
        for row, column in progress_over([*product(systems, repeat=2)], "each against each", progress)
    }
    return Tests(
        against={name: {system: pairs[system, baseline][name] for system in systems} for name in tests.scores},
        matrices={name: {pair: one[name] for pair, one in pairs.items()} for name in IN_MATRICES},
        signatures=tests.signatures,
        run_scores=tests.scores,
    )
