"""METEOR of a corpus: exact and stem modules, with Snowball's stemmers.

The score, its parameters and the sum over the corpus are those of Banerjee & Lavie 2005 (Fmean = 10PR/(R+9P), penalty
0.5 (chunks/matches)^3); the best alignment is searched for over all modules at once, as METEOR 1.5 does. The parameters
that METEOR 1.5 tuned for each language, its synonyms, paraphrases and weights of function words are not here, so its
numbers do not compare with these. Its alignments differ too, as it adds up the weights of matches in whole numbers: in
its search a stem match, of weight 0.6, counts for nothing and is left out where it would begin a chunk. Here it is a
match.
Of several references each sentence is counted against its best one, as METEOR 1.5 does.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from sacrebleu.metrics.base import Metric, Score, Signature

from .languages import language_code, language_name

BEAM = 40  # METEOR 1.5's

Words = Sequence[str]
Counts = tuple[int, int, int, int]  # matches, chunks, words of the hypothesis, words of the reference

Stem = Callable[[str], str]  # two words match if theirs are equal

# What the rest of an alignment depends on: the reference words taken, as bits, and where the last word went.
State = tuple[int, int]
NOWHERE = -2  # no position follows it


class MeteorSignature(Signature):
    """Signature of METEOR as sacreBLEU writes it: what the score depends on."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.info |= {"case": "lc", "tok": "moses", "modules": "+".join(args["modules"])}
        self.info["version"] = f"admin_nmt-{version('admin_nmt')}"


class Meteor(Metric):
    """METEOR of one language as a metric of sacreBLEU: the statistics of a sentence are its `Counts`.

    Args:
        language: two-letter code of the target language; one without a Snowball stemmer has exact matches alone.
        tokenize: a lower-cased sentence to its tokens, separated by spaces.

    Attributes:
        modules: that are at work, such as ("exact", "stem").

    Raises:
        ImportError: snowballstemmer is not installed.
    """

    _SIGNATURE_TYPE = MeteorSignature

    def __init__(self, language: str, tokenize: Callable[[str], str] = str) -> None:
        super().__init__()
        self.modules, self._stem = _modules(language_code(language))
        self._tokenize, self.name = tokenize, f"METEOR ({', '.join(self.modules)})"

    def counts(self, hypothesis: Words, references: Sequence[Words]) -> Counts:
        """Counts of a sentence, against the reference with which it scores best: the first one of equals."""
        counts = ((*align(hypothesis, words, self._stem), len(hypothesis), len(words)) for words in references)
        return max(counts, key=self.score)

    @staticmethod
    def score(counts: Sequence[float]) -> float:
        """METEOR (0 to 100) of the `Counts` of a sentence, or of their sums over a corpus."""
        matches, chunks, hypothesis_words, reference_words = counts
        if not matches:
            return 0.0
        precision, recall = matches / hypothesis_words, matches / reference_words
        mean = 10 * precision * recall / (recall + 9 * precision)
        return 100 * mean * (1 - 0.5 * (chunks / matches) ** 3)

    def _preprocess_segment(self, sent: str) -> str:
        return self._tokenize(sent.lower())

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": [line.split() for line in refs]}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[int]:
        return list(self.counts(hypothesis.split(), ref_kwargs["references"]))

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        return Score(self.name, self.score(stats))

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])


def align(hypothesis: Words, reference: Words, stem: Stem) -> tuple[int, int]:
    """The words matched and the chunks they form, in the alignment with most matches and, of these, fewest chunks.

    A chunk is a run of words that are adjacent, and in the same order, on both sides. A beam search over the words of
    the hypothesis: exact for sentences that repeat few words, else within a few chunks.
    """
    positions = defaultdict[str, list[int]](list)
    for position, word in enumerate(reference):
        positions[stem(word)].append(position)
    states: dict[State, int] = {(0, NOWHERE): 0}
    for word in hypothesis:
        candidates = positions[stem(word)]
        following: dict[State, int] = {}
        for (taken, last), chunks in states.items():
            options = {(taken, NOWHERE): chunks}
            for position in candidates:
                if not taken >> position & 1:
                    options[taken | 1 << position, position] = chunks + (position != last + 1)
            for state, count in options.items():
                following[state] = min(count, following.get(state, count))
        states = dict(sorted(following.items(), key=_rank)[:BEAM])
    (taken, _), chunks = min(states.items(), key=_rank)
    return taken.bit_count(), chunks


def _rank(item: tuple[State, int]) -> tuple[int, int]:
    (taken, _), chunks = item
    return -taken.bit_count(), chunks


def _modules(language: str) -> tuple[tuple[str, ...], Stem]:
    """The names of the modules for a language, and the stemmer by which its words match."""
    try:
        import snowballstemmer
    except ImportError as error:
        raise ImportError("METEOR needs Snowball's stemmers: pip install 'admin_nmt[metrics]'") from error
    name = language_name(language).lower().split(" ")[0]  # Bokmål and Nynorsk share the Norwegian stemmer
    if name not in snowballstemmer.algorithms():
        return ("exact",), str
    return ("exact", "stem"), cache(snowballstemmer.stemmer(name).stemWord)
