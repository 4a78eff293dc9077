"""METEOR: numbers worked out by hand, an exhaustive alignment, stemmers by language."""

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admin_nmt.metrics.meteor import Meteor, align


def corpus_meteor(hypotheses, references, language):
    """Name and score against one reference each."""
    metric = Meteor(language)
    score = metric.corpus_score(list(map(" ".join, hypotheses)), [list(map(" ".join, references))]).score
    return "_".join(("meteor", *metric.modules)), score


def exhaustive(hypothesis, reference):
    """Most matches and, of these, fewest chunks, over every alignment there is."""
    best = (0, 0)
    slots = [*range(len(reference)), *[None] * len(hypothesis)]
    for places in set(permutations(slots, len(hypothesis))):
        pairs = [(i, j) for i, j in enumerate(places) if j is not None and hypothesis[i] == reference[j]]
        chunks = sum((i - 1, j - 1) not in pairs for i, j in pairs)
        best = min(best, (-len(pairs), chunks))
    return -best[0], best[1]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abc"), max_size=4), st.lists(st.sampled_from("abc"), max_size=4))
def test_alignment_is_the_best_of_all(hypothesis, reference):
    assert align(hypothesis, reference, str) == exhaustive(hypothesis, reference)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=25), st.lists(st.sampled_from("abcdefgh"), max_size=25))
def test_alignment_finds_every_match(hypothesis, reference):
    matches, chunks = align(hypothesis, reference, str)
    assert matches == (Counter(hypothesis) & Counter(reference)).total()
    assert bool(matches) <= chunks <= matches


def test_score_by_hand():
    # 7 words match 8, in 2 chunks: P 1, R 7/8, F = 10PR / (R + 9P) = 70/79, penalty 0.5 * (2/7)^3
    name, value = corpus_meteor([["a", *"bcdefg"]], [[*"abcd", "x", *"efg"]], "de")
    assert name == "meteor_exact_stem"
    assert value == pytest.approx(100 * 70 / 79 * (1 - 0.5 * (2 / 7) ** 3))


@pytest.mark.parametrize(
    ("language", "word", "other", "modules", "expected"),
    [
        ("de", "häuser", "haus", "exact_stem", 50),  # one match in one chunk
        ("pt_BR", "casas", "casa", "exact_stem", 50),
        ("nb", "husene", "huset", "exact_stem", 50),
        ("zh-Hans", "读书", "看书", "exact", 0),
        ("is", "häuser", "haus", "exact", 0),
    ],
)
def test_stems_match_in_languages_with_a_stemmer(language, word, other, modules, expected):
    assert corpus_meteor([[word]], [[other]], language) == (f"meteor_{modules}", pytest.approx(expected))


@pytest.mark.parametrize(
    ("hypothesis", "references"),
    [
        ("a b c d", ["x y", "a b d", "a x b c d"]),
        ("a b c d", ["d c b a", "b c", "a x d"]),
        ("a b", ["c", "d"]),
        ("a b c", ["a b c", "a b c d"]),
    ],
)
def test_meteor_is_nltks_for_its_best_reference(hypothesis, references):
    """Words without a repetition, where all alignments are the same; without NLTK's data, so without synonyms."""
    nltk_meteor = pytest.importorskip("nltk.translate.meteor_score")

    class NoWordNet:
        synsets = staticmethod(lambda word: [])

    ours, theirs = hypothesis.split(), [reference.split() for reference in references]
    meteor = Meteor("en")
    expected = nltk_meteor.meteor_score(theirs, ours, wordnet=NoWordNet)
    assert meteor.score(meteor.counts(ours, theirs)) == pytest.approx(100 * expected)
