"""Systems that translated one test set, compared: significance, rare words, sentence length, n-grams, examples.

The analyses are those of compare-mt (Neubig et al. 2019) on the tokens of sacreBLEU. compare-mt itself is not used:
its last release is of 2022, it imports a package that it does not declare, and its BLEU is not sacreBLEU's.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from tqdm import tqdm

from .scores import Scores, all_scores, bleu_of
from .significance import Difference, Systems, paired_bootstrap, significance_matrix, significance_metrics

ORDER = 4  # of the longest n-grams, as in BLEU
FREQUENCIES = (1, 2, 5, 10, 100, 1000)
LENGTHS = (5, 10, 15, 20, 25, 30, 40, 50, 60)
Item = TypeVar("Item")


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
    """How often two systems get an n-gram of the references right, and how often the references have it."""

    ngram: str
    first: int
    second: int
    wanted: int

    @property
    def counts(self) -> tuple[int, int]:
        """Of the two systems."""
        return self.first, self.second


@dataclass(frozen=True)
class Contrast:
    """Where one system is better than another: n-grams, and sentences (counted from 0) with the chrF of both."""

    better: str
    worse: str
    ngrams: list[NgramDifference]
    sentences: dict[int, tuple[float, float]]


@dataclass(frozen=True)
class Comparison:
    """Everything that is said about systems that translated one test set.

    Attributes:
        systems: their translations.
        references: one for each translation.
        sources: what was translated, where it is known.
        baseline: the system that the others are set against.
        scores: every score and signature of each system, as `admin_nmt.metrics.scores` names them.
        against: by metric, each system against the baseline.
        signatures: of these tests, by metric.
        matrices: by metric, each system (row) against each (column).
        accuracy: F1 of the words of each training frequency, where there was a training text.
        lengths: BLEU of the sentences of each length.
        contrasts: the baseline and every other system, both ways.
    """

    systems: dict[str, list[str]]
    references: list[str]
    sources: list[str] | None
    baseline: str
    scores: dict[str, Scores]
    against: dict[str, dict[str, Difference]]
    signatures: dict[str, str]
    matrices: dict[str, dict[tuple[str, str], Difference]]
    accuracy: Buckets | None
    lengths: Buckets
    contrasts: list[Contrast]


def compare(
    systems: dict[str, list[str]],
    references: list[str],
    *,
    sources: list[str] | None = None,
    baseline: str | None = None,
    train_target: Iterable[str] | None = None,
    language: str = "de",
    progress: bool = False,
) -> Comparison:
    """All analyses of this module.

    Args:
        systems: the detokenised translations of each system by its name, as many as references.
        references: raw references.
        sources: what was translated, for COMET and for whoever shows the examples.
        baseline: the system to set the others against; None for the first.
        train_target: the target side of the training text, which may be a stream; None leaves out the word accuracies.
        language: two-letter code of the target language.
        progress: show on stderr how far it is.

    Raises:
        ValueError: a system has more or fewer lines than there are references, or none, or `baseline` is no system.
        ImportError: BLEU's tokeniser for `language` is not installed.
    """
    baseline = baseline or next(iter(systems))
    if baseline not in systems:
        raise ValueError(f"baseline {baseline!r} is none of the systems {', '.join(systems)}")

    def steps(items: Iterable[Item], what: str) -> Iterable[Item]:
        return tqdm(items, desc=what, leave=False, disable=None if progress else True)  # None: not in a log file

    bleu = bleu_of(language)
    tokenized = {name: [bleu.tokenizer(line) for line in lines] for name, lines in systems.items()}
    wanted = [bleu.tokenizer(line) for line in references]
    accuracy = None
    if train_target is not None:
        words = vocabulary(wanted, *tokenized.values())
        frequencies = word_frequencies(steps(train_target, "training text"), words, bleu.tokenizer)
        accuracy = word_accuracy(tokenized, wanted, frequencies)
    scores = {
        name: all_scores(lines, references, language, sources=sources)
        for name, lines in steps(systems.items(), "scores")
    }
    metrics = significance_metrics(language)
    ordered = {baseline: systems[baseline]} | systems
    tests = {
        name: paired_bootstrap(ordered, references, metric)
        for name, metric in steps(metrics.items(), "against the baseline")
    }
    # TER is slow: it is tested against the baseline alone.
    matrices = {
        name: significance_matrix(systems, references, metrics[name])
        for name in steps(("BLEU", "chrF"), "each against each")
    }
    return Comparison(
        systems=systems,
        references=references,
        sources=sources,
        baseline=baseline,
        scores=scores,
        against={name: {system: test[system] for system in systems} for name, (test, _) in tests.items()},
        signatures={name: signature for name, (_, signature) in tests.items()},
        matrices=matrices,
        accuracy=accuracy,
        lengths=bleu_by_length(systems, references, bleu),
        contrasts=_contrasts(systems, references, tokenized, wanted, baseline),
    )


def _contrasts(
    systems: Systems, references: Sequence[str], tokenized: Systems, wanted: Sequence[str], baseline: str
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


def word_frequencies(lines: Iterable[str], words: Set[str], tokenize: Callable[[str], str]) -> Counter[str]:
    """How often each of `words` is in `lines`, which may be a stream."""
    frequencies: Counter[str] = Counter()
    for line in lines:
        frequencies.update(word for word in tokenize(line).split() if word in words)
    return frequencies


def vocabulary(*texts: Iterable[str]) -> set[str]:
    """The words of tokenised texts."""
    return {word for line in chain(*texts) for word in line.split()}


def word_accuracy(
    systems: Systems, references: Sequence[str], frequencies: Mapping[str, int], cutoffs: Sequence[int] = FREQUENCIES
) -> Buckets:
    """F1 in percent of the words of each training frequency, as in figure 3 of Liu et al. 2020.

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


def bleu_by_length(
    systems: Systems, references: Sequence[str], bleu: BLEU, cutoffs: Sequence[int] = LENGTHS
) -> Buckets:
    """BLEU of the sentences of each reference length, counted in the tokens of `bleu`; texts are not tokenised yet."""
    members: list[list[int]] = [[] for _ in (0, *cutoffs)]
    for index, reference in enumerate(references):
        members[bisect_right(cutoffs, len(bleu.tokenizer(reference).split()))].append(index)

    def bucket_bleu(hypotheses: Sequence[str], indices: list[int]) -> float | None:
        if not indices:
            return None
        return float(bleu.corpus_score([hypotheses[i] for i in indices], [[references[i] for i in indices]]).score)

    values = {name: [bucket_bleu(lines, indices) for indices in members] for name, lines in systems.items()}
    return Buckets(bucket_labels(cutoffs), [len(indices) for indices in members], values)


def ngrams(line: str, order: int) -> Counter[str]:
    """The n-grams of a tokenised line, of 1 to `order` words, and how often it has each."""
    words = line.split()
    return Counter(" ".join(words[i : i + n]) for n in range(1, order + 1) for i in range(len(words) - n + 1))


def ngram_counts(lines: Iterable[str], order: int) -> Counter[str]:
    """How often tokenised lines have each n-gram."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(ngrams(line, order))
    return counts


def matches(hypotheses: Sequence[str], references: Sequence[str], order: int) -> Counter[str]:
    """How often each n-gram of tokenised translations is right: it counts as often as its reference has it."""
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


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of every sentence."""
    chrf = CHRF()
    return [chrf.sentence_score(ours, [theirs]).score for ours, theirs in zip(hypotheses, references, strict=True)]


def largest_differences(first: Sequence[float], second: Sequence[float], *, top: int = 5) -> list[int]:
    """The sentences, counted from 0, at which `first` is above `second`, the farthest first."""
    above = [index for index in range(len(first)) if first[index] > second[index]]
    return sorted(above, key=lambda index: second[index] - first[index])[:top]
