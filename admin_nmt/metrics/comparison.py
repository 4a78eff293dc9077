"""Systems that translated one test set, compared: significance, rare words, sentence length, n-grams, examples.

The analyses are those of compare-mt (Neubig et al. 2019) on the tokens of sacreBLEU. compare-mt itself is not used:
its last release is of 2022, it imports a package that it does not declare, and its BLEU is not sacreBLEU's.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from .scores import (
    References,
    Scores,
    bleu_of,
    check_paired,
    reference_columns,
    reference_rows,
    untested_scores,
)
from .significance import Runs, Systems, Tests, bootstrap_tests, progress_over, significance_metrics
from .training_runs import run_tests

ORDER = 4  # of the longest n-grams, as in BLEU
FREQUENCIES = (1, 2, 5, 10, 100, 1000)
LENGTHS = (5, 10, 15, 20, 25, 30, 40, 50, 60)


@dataclass(frozen=True)
class Buckets:
    """A measure of every system in each of several buckets; None where the references have nothing in the bucket.

    `counts` are words or sentences of the references.
    """

    labels: list[str]
    counts: list[int]
    values: dict[str, list[float | None]]


@dataclass(frozen=True)
class NgramDifference:
    """Number of times that two systems get an n-gram of the references right, and that the references have it."""

    ngram: str
    first: int
    second: int
    wanted: int

    @property
    def counts(self) -> tuple[int, int]:
        """Counts of the two systems."""
        return self.first, self.second


@dataclass(frozen=True)
class Contrast:
    """Evidence for one system against another: n-grams, and sentences (counted from 0) with the chrF of both."""

    better: str
    worse: str
    ngrams: list[NgramDifference]
    sentences: dict[int, tuple[float, float]]


@dataclass(frozen=True)
class Comparison(Tests):
    """Everything that is said about systems that translated one test set.

    Attributes:
        systems: the translations of each, of its first training run if it has several.
        runs: how many each system has.
        references: the first one of each translation.
        more_references: the second one of each, and so on.
        sources: what was translated, where it is known.
        baseline: the system that the others are set against.
        scores: those of each system that are not tested, as `admin_nmt.metrics.scores` names them, means over its runs.
        accuracy: F1 of the words of each training frequency, mean over the runs, where there was a training text.
        lengths: BLEU of the sentences of each length, mean over the runs.
        contrasts: the baseline and every other system, both ways.
    """

    systems: dict[str, list[str]]
    runs: dict[str, int]
    references: list[str]
    more_references: list[list[str]]
    sources: list[str] | None
    baseline: str
    scores: dict[str, Scores]
    accuracy: Buckets | None
    lengths: Buckets
    contrasts: list[Contrast]


def compare(
    systems: Mapping[str, Runs],
    references: References,
    *,
    sources: list[str] | None = None,
    baseline: str | None = None,
    train_target: Iterable[str] | None = None,
    language: str = "de",
    progress: bool = False,
) -> Comparison:
    """Compare systems by all analyses of this module.

    Words, n-grams and lengths are those of the first reference.

    Args:
        systems: by name, the detokenised translations of each training run of a system; most have one run.
        references: the raw reference of each sentence, or a list of references of each.
        sources: what was translated, for COMET and for whoever shows the examples.
        baseline: the system to set the others against; None for the first.
        train_target: the target side of the training text, which may be a stream; None leaves out the word accuracies.
        language: two-letter code of the target language.
        progress: show on stderr how far it is.

    Raises:
        ValueError: a run has more or fewer lines than there are references, or none, or `baseline` is no system.
        ImportError: BLEU's tokeniser for `language`, or METEOR's stemmers, are not installed.
    """
    baseline = baseline or next(iter(systems))
    if baseline not in systems:
        raise ValueError(f"baseline {baseline!r} is none of the systems {', '.join(systems)}")
    for lines in chain(*systems.values()):
        check_paired(lines, references)
    significance_metrics(language)  # which raises here what it needs, not after minutes of work
    bleu = bleu_of(language)
    first, *more = reference_columns(references)
    tokenized = {name: [[bleu.tokenizer(line) for line in run] for run in runs] for name, runs in systems.items()}
    wanted = [bleu.tokenizer(line) for line in first]
    accuracy = None
    if train_target is not None:
        words = {word for line in chain(wanted, *chain(*tokenized.values())) for word in line.split()}
        texts = progress_over(train_target, "training text", progress)
        frequencies = Counter(word for line in texts for word in bleu.tokenizer(line).split() if word in words)
        accuracy = mean_buckets(tokenized, lambda runs: word_accuracy(runs, wanted, frequencies))
    scores = {
        name: mean_scores([untested_scores(lines, references, language, sources) for lines in runs])
        for name, runs in progress_over(systems.items(), "scores", progress)
    }
    test = run_tests if any(len(runs) > 1 for runs in systems.values()) else bootstrap_tests
    tests = test(systems, references, baseline, language, progress)
    shown = {name: list(runs[0]) for name, runs in systems.items()}
    return Comparison(
        **vars(tests),
        systems=shown,
        runs={name: len(runs) for name, runs in systems.items()},
        references=first,
        more_references=more,
        sources=sources,
        baseline=baseline,
        scores=scores,
        accuracy=accuracy,
        lengths=mean_buckets(systems, lambda runs: bleu_by_length(runs, references, bleu)),
        contrasts=_contrasts(shown, references, {name: runs[0] for name, runs in tokenized.items()}, wanted, baseline),
    )


def mean_scores(runs: Sequence[Scores]) -> Scores:
    """The mean of each score over the runs of a system; what is no number is the same in all."""
    first = runs[0]
    return {
        name: value if isinstance(value, str) else fmean(float(run[name]) for run in runs)
        for name, value in first.items()
    }


def mean_buckets(systems: Mapping[str, Runs], measure: Callable[[Systems], Buckets]) -> Buckets:
    """The buckets of each system with the means over its runs; `measure` takes these by any name."""
    values: dict[str, list[float | None]] = {}
    for name, runs in systems.items():
        buckets = measure({str(number): lines for number, lines in enumerate(runs)})
        columns = zip(*buckets.values.values(), strict=True)
        values[name] = [None if None in column else fmean(column) for column in columns]
    return Buckets(buckets.labels, buckets.counts, values)


def _contrasts(
    systems: Systems, references: References, tokenized: Systems, wanted: Sequence[str], baseline: str
) -> list[Contrast]:
    chrf = {name: sentence_chrf(lines, references) for name, lines in systems.items()}
    right = {name: matches(lines, wanted, ORDER) for name, lines in tokenized.items()}
    present = ngram_counts(wanted, ORDER)
    others = [name for name in systems if name != baseline]
    contrasts = []
    for better, worse in chain.from_iterable(((name, baseline), (baseline, name)) for name in others):
        indices = largest_differences(chrf[better], chrf[worse])
        sentences = {index: (chrf[better][index], chrf[worse][index]) for index in indices}
        found = ngram_differences(right[better], right[worse], present)
        if found or sentences:
            contrasts.append(Contrast(better, worse, found, sentences))
    return contrasts


def bucket_labels(cutoffs: Sequence[int]) -> list[str]:
    """Names of the buckets of counts that `cutoffs` separate: (1, 2, 5) makes "0", "1", "2–4" and "≥5"."""
    starts = [0, *cutoffs]
    ranges = zip(starts, cutoffs, strict=False)
    return [f"{a:,}" if b == a + 1 else f"{a:,}–{b - 1:,}" for a, b in ranges] + [f"≥{cutoffs[-1]:,}"]


def word_accuracy(
    systems: Systems, references: Sequence[str], frequencies: Mapping[str, int], cutoffs: Sequence[int] = FREQUENCIES
) -> Buckets:
    """F1 in percent of the words of each training frequency, as in figure 3 of Liu, Duh et al. 2020.

    A word of a translation is right if its reference has it, each occurrence once; precision and recall are taken over
    all the words of a bucket.

    Args:
        systems: tokenised translations of each system.
        references: tokenised references.
        frequencies: how often a word is in the training text; a word it lacks counts 0.
        cutoffs: the first frequency of every bucket but the first.
    """

    def per_bucket(counts: Counter[str]) -> list[int]:
        totals = [0] * (len(cutoffs) + 1)
        for word, count in counts.items():
            totals[bisect_right(cutoffs, frequencies.get(word, 0))] += count
        return totals

    wanted = per_bucket(Counter(word for line in references for word in line.split()))
    values: dict[str, list[float | None]] = {}
    for name, hypotheses in systems.items():
        right, produced = per_bucket(matches(hypotheses, references, 1)), per_bucket(ngram_counts(hypotheses, 1))
        rows = zip(right, produced, wanted, strict=True)
        values[name] = [200 * both / (ours + theirs) if theirs else None for both, ours, theirs in rows]
    return Buckets(bucket_labels(cutoffs), wanted, values)


def bleu_by_length(systems: Systems, references: References, bleu: BLEU, cutoffs: Sequence[int] = LENGTHS) -> Buckets:
    """BLEU of the sentences of each length of the first reference, in tokens of `bleu`; texts are not tokenised yet."""
    members: list[list[int]] = [[] for _ in (0, *cutoffs)]
    columns = reference_columns(references)
    for index, reference in enumerate(columns[0]):
        members[bisect_right(cutoffs, len(bleu.tokenizer(reference).split()))].append(index)

    def bucket_bleu(hypotheses: Sequence[str], indices: list[int]) -> float | None:
        if not indices:
            return None
        chosen = [[column[i] for i in indices] for column in columns]
        return float(bleu.corpus_score([hypotheses[i] for i in indices], chosen).score)

    values = {name: [bucket_bleu(lines, indices) for indices in members] for name, lines in systems.items()}
    return Buckets(bucket_labels(cutoffs), [len(indices) for indices in members], values)


def ngrams(line: str, order: int) -> Counter[str]:
    """The n-grams of a tokenised line, of 1 to `order` words, and how often it has each."""
    words = line.split()
    return Counter(" ".join(words[i : i + n]) for n in range(1, order + 1) for i in range(len(words) - n + 1))


def ngram_counts(lines: Iterable[str], order: int) -> Counter[str]:
    """Count the n-grams of tokenised lines."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(ngrams(line, order))
    return counts


def matches(hypotheses: Sequence[str], references: Sequence[str], order: int) -> Counter[str]:
    """Count the right n-grams of tokenised translations: each as often as its reference has it."""
    counts: Counter[str] = Counter()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        counts.update(ngrams(hypothesis, order) & ngrams(reference, order))
    return counts


def ngram_differences(
    first: Counter[str], second: Counter[str], wanted: Counter[str], top: int = 10
) -> list[NgramDifference]:
    """The n-grams that one system gets right more often than another, the most telling ones first.

    They are ordered by (a + 1) / (a + b + 2) of the two counts, as in compare-mt. Of n-grams inside each other with
    equal counts only the longest is given.

    Args:
        first: how often the system gets each n-gram right, from `matches`.
        second: the same of the other system.
        wanted: how often the references have each n-gram.
        top: how many to give.
    """
    better = [ngram for ngram in first if first[ngram] > second[ngram]]

    def rank(ngram: str) -> tuple[float, int, str]:
        return -(first[ngram] + 1) / (first[ngram] + second[ngram] + 2), -ngram.count(" "), ngram

    chosen: list[NgramDifference] = []
    for ngram in sorted(better, key=rank):
        one = NgramDifference(ngram, first[ngram], second[ngram], wanted[ngram])
        if not any(f" {ngram} " in f" {longer.ngram} " and one.counts == longer.counts for longer in chosen):
            chosen.append(one)
        if len(chosen) == top:
            break
    return chosen


def sentence_chrf(hypotheses: Sequence[str], references: References) -> list[float]:
    """chrF of every sentence, against its best reference."""
    chrf, rows = CHRF(), reference_rows(reference_columns(references))
    return [chrf.sentence_score(ours, theirs).score for ours, theirs in zip(hypotheses, rows, strict=True)]


def largest_differences(first: Sequence[float], second: Sequence[float], *, top: int = 5) -> list[int]:
    """The sentences, counted from 0, at which `first` is above `second`, the farthest first."""
    above = [index for index in range(len(first)) if first[index] > second[index]]
    return sorted(above, key=lambda index: second[index] - first[index])[:top]
