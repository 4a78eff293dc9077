"""Comparing systems: the tests of significance, and the counts, which are those of compare-mt."""

import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from admin_nmt.data.phrasebook import phrasebook
from admin_nmt.metrics.comparison import (
    NgramDifference,
    bleu_by_length,
    compare,
    matches,
    ngram_counts,
    ngram_differences,
    word_accuracy,
)
from admin_nmt.metrics.scores import corpus_scores, meteor, reference_rows
from admin_nmt.metrics.significance import paired_bootstrap, significance_matrix, significance_metrics

LINES = 200


@pytest.fixture(scope="module")
def references():
    return [target for _, target in phrasebook(LINES, 1, 1)["train"]]


@pytest.fixture(scope="module")
def good(references):
    """Translations with every tenth word lost."""
    rng = random.Random(0)
    return [" ".join(word for word in line.split() if rng.random() > 0.1) or line for line in references]


@pytest.fixture(scope="module")
def shuffled(good):
    """Translations of `good` with the words of 50 lines in another order."""
    rng, lines = random.Random(1), list(good)
    for index in rng.sample(range(LINES), 50):
        words = lines[index].split()
        rng.shuffle(words)
        lines[index] = " ".join(words)
    return lines


def test_shuffled_lines_are_significantly_worse_and_a_copy_is_equal_by_the_scores_of_the_metrics(
    good, shuffled, references
):
    expected = corpus_scores(shuffled, references)
    for name, metric in significance_metrics().items():
        systems = {"good": good, "copy": list(good), "shuffled": shuffled}
        differences, signature = paired_bootstrap(systems, references, metric)
        worse = differences.pop("shuffled")
        assert worse.mark == "−" and worse.p < 0.01
        assert (worse.points > 0) == isinstance(metric, TER)
        assert worse.score == pytest.approx(expected[name.lower()], abs=1e-9)
        assert {(one.points, one.p, one.mark) for one in differences.values()} == {(0.0, 1.0, "=")}
        assert "bs:1000|seed:12345" in signature


def test_meteor_is_tested_as_it_is_scored(good, shuffled, references):
    """Its score is a ratio of sums over the corpus, and so is that of each bootstrap sample."""
    (metric,) = (one for name, one in significance_metrics("de").items() if name == "METEOR (exact, stem)")
    systems = {"good": good, "shuffled": shuffled}
    differences, signature = paired_bootstrap(systems, references, metric)
    expected = {name: meteor(lines, references, "de")["meteor_exact_stem"] for name, lines in systems.items()}
    assert {name: one.score for name, one in differences.items()} == pytest.approx(expected)
    assert (differences["shuffled"].mark, differences["good"].p) == ("−", 1.0)
    assert signature.startswith("nrefs:1|bs:1000|seed:12345|case:lc|tok:moses|modules:exact+stem|version:admin_nmt-")
    counts = np.array(metric._extract_corpus_statistics(shuffled, [references]), dtype=float)
    drawn = np.random.default_rng(12345).choice(LINES, (1000, LINES))
    matches_, chunks, ours, theirs = counts[drawn].sum(1).T
    precision, recall = matches_ / ours, matches_ / theirs
    samples = 1000 * precision * recall / (recall + 9 * precision) * (1 - 0.5 * (chunks / matches_) ** 3)
    low, high = np.sort(samples)[[25, 974]]
    assert differences["shuffled"].interval == pytest.approx((high - low) / 2, rel=1e-4)


def test_few_lines_are_never_significant(references):
    """The bootstrap samples of one sentence are all equal, so sacreBLEU's p is the smallest there is."""
    systems = {"perfect": references, "wrong": ["nichts davon stimmt"] * LINES}
    for count, mark in ((1, "="), (4, "="), (5, "−")):
        few = {name: lines[:count] for name, lines in systems.items()}
        differences, _ = paired_bootstrap(few, references[:count], CHRF())
        assert (differences["wrong"].p, differences["wrong"].mark) == (pytest.approx(0.5**count, abs=1e-3), mark)
    repeated = {"perfect": references[:1] * 50, "wrong": systems["wrong"][:50]}
    assert paired_bootstrap(repeated, references[:1] * 50, CHRF())[0]["wrong"].p == 0.5


def test_matrix_is_antisymmetric_and_ignores_company(good, shuffled, references):
    systems = {"good": good, "shuffled": shuffled, "reference": references}
    matrix = significance_matrix(systems, references, CHRF())
    assert [[matrix[row, column].mark for column in systems] for row in systems] == [
        ["=", "+", "−"],
        ["−", "=", "−"],
        ["+", "+", "="],
    ]
    for (row, column), one in matrix.items():
        assert (one.points, one.p) == (-matrix[column, row].points, matrix[column, row].p)
    alone = significance_matrix({"shuffled": shuffled, "good": good}, references, CHRF())
    assert alone["good", "shuffled"] == matrix["good", "shuffled"]


def test_word_accuracy_is_that_of_compare_mt():
    """Golden numbers of compare-mt 0.2.10: FreqWordBucketer.calc_statistics, its F-measure."""
    references = ["der Hund läuft über die Wiese", "der Mann und der Hund", "ein Hund bellt"]
    systems = {
        "a": ["der Hund läuft auf der Wiese", "der der Mann und Hund", "ein Hund bellt laut"],
        "b": ["Hund läuft über Wiese", "Mann und Frau und Hund", ""],
    }
    frequencies = {"der": 100, "Hund": 30, "und": 40, "die": 60, "ein": 50, "läuft": 4, "über": 7, "Wiese": 1}
    buckets = word_accuracy(systems, references, frequencies | {"laut": 3, "Frau": 9}, (1, 2, 5, 10, 100))
    assert buckets.counts == [2, 1, 1, 1, 6, 3]
    assert buckets.values["a"] == pytest.approx([80, 100, 200 / 3, 0, 1000 / 11, 600 / 7])
    assert buckets.values["b"] == pytest.approx([200 / 3, 100, 100, 200 / 3, 60, 0])


def test_bleu_by_length_is_bleu_of_the_sentences_of_a_bucket(good, references):
    bleu = BLEU()
    buckets = bleu_by_length({"good": good}, references, bleu, (8, 500))
    short = [index for index, line in enumerate(references) if len(bleu.tokenizer(line).split()) < 8]
    assert 0 < len(short) < LINES
    assert buckets.counts == [len(short), LINES - len(short), 0]
    expected = corpus_scores([good[i] for i in short], [references[i] for i in short])["bleu"]
    assert buckets.values["good"][0] == pytest.approx(expected)
    assert buckets.values["good"][2] is None
    (whole,) = bleu_by_length({"good": good}, references, bleu, (500,)).values["good"][:1]
    assert whole == pytest.approx(corpus_scores(good, references)["bleu"])


def test_ngrams_that_one_system_gets_right_more_often():
    references = ["der rote Hund läuft", "der rote Ball", "ein Ball"]
    first = matches(["der rote Hund läuft", "der rote Ball", "ein"], references, 4)
    second = matches(["rote der Hund", "der rote rote rote", "ein Ball"], references, 4)
    found = ngram_differences(first, second, ngram_counts(references, 4))
    # "Hund läuft" and "läuft" are inside the longer one with the same counts; "Ball" is right once in both.
    assert found[:2] == [NgramDifference("der rote Hund läuft", 1, 0, 1), NgramDifference("der rote Ball", 1, 0, 1)]
    assert [one.ngram for one in found[2:]] == ["der rote"]
    assert [one.ngram for one in ngram_differences(second, first, ngram_counts(references, 4))] == ["ein Ball"]


def test_with_several_references_scores_take_all_and_words_the_first(good, shuffled, references):
    good, shuffled, references = (lines[:30] for lines in (good, shuffled, references))
    several, systems = reference_rows([references, good]), {"good": [good], "shuffled": [shuffled]}
    comparison = compare(systems, several, train_target=references)
    assert (comparison.references, comparison.more_references) == (references, [good])
    scores = corpus_scores(shuffled, several, "de") | meteor(shuffled, several, "de")
    names = {"BLEU": "bleu", "chrF": "chrf", "TER": "ter", "METEOR (exact, stem)": "meteor_exact_stem"}
    for metric, name in names.items():
        assert comparison.against[metric]["shuffled"].score == pytest.approx(scores[name])
        assert comparison.signatures[metric].startswith("nrefs:2|")
    assert comparison.against["BLEU"]["good"].score == pytest.approx(100)
    single = compare(systems, references, baseline="shuffled", train_target=iter(references))
    assert (single.against["BLEU"]["good"].mark, single.against["BLEU"]["shuffled"].p) == ("+", 1)
    assert list(single.against["BLEU"]) == ["good", "shuffled"]
    assert single.accuracy.values["good"] == single.accuracy.values["shuffled"]  # order does not matter to it
    with pytest.raises(ValueError, match="'best'"):
        compare(systems, references, baseline="best")
    assert comparison.accuracy == single.accuracy
    assert comparison.lengths.counts == single.lengths.counts
    assert [one.ngrams for one in comparison.contrasts] == [one.ngrams for one in single.contrasts]
    contrast = comparison.contrasts[-1]
    assert (contrast.better, contrast.worse) == ("good", "shuffled")
    assert {chrf for chrf, _ in contrast.sentences.values()} == {100}
