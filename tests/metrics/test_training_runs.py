"""Systems of several training runs: p by all permutations, sacreBLEU's own test for single runs, MultEval's numbers."""

import random
from fractions import Fraction
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from admin_nmt.metrics import training_runs
from admin_nmt.metrics.comparison import compare
from admin_nmt.metrics.significance import paired_bootstrap
from admin_nmt.metrics.training_runs import RunTests

REFERENCES = ["a b c d e f g h i j"] * 3  # ten words each, so that each wrong one is TER 10/3 of three sentences


def with_errors(*counts):
    """A translation of each sentence with so many wrong words."""
    return [" ".join([*"abcdefghij"[count:], *["x"] * count]) for count in counts]


def edits(lines):
    return [round(TER().sentence_score(line, [REFERENCES[0]]).score / 10) for line in lines]


def exact_p(first, second):
    """Counts every way to give each sentence's translations to the two systems, from the numbers of their edits."""
    runs = [edits(lines) for lines in [*first, *second]]
    columns, ours = list(zip(*runs, strict=True)), len(first)

    def distance(chosen):
        """Distance of the error rates, from which runs of each sentence go to the first system."""
        mine = sum(sum(column[run] for run in runs) for column, runs in zip(columns, chosen, strict=True))
        total = sum(map(sum, columns))
        return abs(Fraction(mine, ours) - Fraction(total - mine, len(runs) - ours))

    observed = distance([range(ours)] * len(columns))
    ways = [distance(chosen) for chosen in product(combinations(range(len(runs)), ours), repeat=len(columns))]
    return sum(way >= observed for way in ways), len(ways)


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=3, max_size=4), st.randoms(use_true_random=False))
def test_p_of_any_runs_is_exact_and_their_order_makes_no_difference(counts, rng):
    """One system has more runs than the other."""
    runs = [with_errors(*one) for one in counts]
    first, second = runs[:1], runs[1:]
    expected = Fraction(*exact_p(first, second))
    tests = RunTests({"one": first, "other": second}, REFERENCES, {"TER": TER()}).difference("one", "other")["TER"]
    assert tests.p == pytest.approx(float(expected), abs=0.025)
    rng.shuffle(second)
    again = RunTests({"other": second, "one": first}, REFERENCES, {"TER": TER()})
    assert again.difference("one", "other")["TER"].p == tests.p == again.difference("other", "one")["TER"].p


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=3))
def test_a_system_does_not_differ_from_itself(counts):
    runs = [with_errors(*one) for one in counts]
    tests = RunTests({"one": runs, "copy": [list(run) for run in runs]}, REFERENCES, {"TER": TER(), "chrF": CHRF()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_runs, "TRIALS", 200)
        for other in ("one", "copy"):
            found = tests.difference(other, "one").values()
            assert {(one.points, one.p, one.mark) for one in found} == {(0.0, 1.0, "=")}


@pytest.fixture(scope="module")
def texts():
    """Three runs of two systems on 120 sentences: each loses words of the reference by chance, the second more."""
    rng = random.Random(1)
    references = [" ".join(rng.choices("abcdefghijklm", k=rng.randint(4, 14))) for _ in range(120)]

    def run(share):
        return [" ".join(word for word in line.split() if rng.random() > share) or "x" for line in references]

    return {"one": [run(0.1) for _ in range(3)], "other": [run(0.14) for _ in range(3)]}, references


def test_of_single_runs_it_is_sacrebleus_approximate_randomisation_and_bootstrap(texts):
    systems, references = texts
    single, metric = {name: runs[1] for name, runs in systems.items()}, BLEU()
    _, scores = PairedTest(list(single.items()), {"BLEU": metric}, [references], test_type="ar")()
    tests = RunTests({name: [lines] for name, lines in single.items()}, references, {"BLEU": metric})
    one = tests.difference("other", "one")["BLEU"]
    assert 0.3 < one.p == pytest.approx(scores["BLEU"][1].p_value, abs=0.025)
    assert (one.s_opt, one.score) == (None, pytest.approx(scores["BLEU"][1].score))
    bootstrap = paired_bootstrap(single, references, metric)[0]["other"]
    assert (one.points, one.interval) == pytest.approx((bootstrap.points, bootstrap.interval), abs=1e-4)


def test_scores_and_deviations_are_means_over_the_runs(texts):
    systems, references = texts
    metric = BLEU()
    each = {name: [metric.corpus_score(run, [references]).score for run in runs] for name, runs in systems.items()}
    tests = RunTests(systems, references, {"BLEU": metric})
    one = tests.difference("other", "one")["BLEU"]
    assert tests.scores["BLEU"] == {name: pytest.approx(scores) for name, scores in each.items()}
    assert one.points == pytest.approx(sum(each["other"]) / 3 - sum(each["one"]) / 3)
    single = [
        RunTests({"x": [run]}, references, {"BLEU": metric}).difference("x", "x")["BLEU"] for run in systems["other"]
    ]
    assert one.s_sel == pytest.approx(sum(other.s_sel for other in single) / 3)
    assert one.interval == pytest.approx(sum(other.interval for other in single) / 3)
    assert "ar:10000|" in tests.signatures["BLEU"] and "bs:1000|" in tests.signatures["BLEU"]


def test_numbers_are_multevals(texts):
    """MultEval 0.5.1 printed these for the same texts: BLEU and TER with 10,000 samples, p of single runs in BLEU.

    Its p of several runs exchanges the k-th runs alone, which for single runs is the same; it counts no ties, of which
    TER has many.
    """
    systems, references = texts
    metrics = {"BLEU": BLEU(tokenize="none", smooth_method="none", force=True), "TER": TER()}
    tests = RunTests(systems, references, metrics)
    printed = {
        ("one", "BLEU"): (78.813672, 2.014433, 2.027900),
        ("other", "BLEU"): (72.306483, 1.839210, 2.270948),
        ("one", "TER"): (10.632746, 0.832182, 0.981404),
        ("other", "TER"): (13.437704, 0.734399, 1.044038),
    }
    for (system, metric), (mean, s_opt, s_sel) in printed.items():
        one = tests.difference(system, "one")[metric]
        assert (one.score, one.s_opt) == pytest.approx((mean, s_opt), abs=1e-6)
        assert one.s_sel == pytest.approx(s_sel, rel=0.1)  # four standard deviations of 1,000 samples
    for run, p in enumerate((0.001720, 0.405916, 0.014710)):
        single = RunTests({name: runs[run : run + 1] for name, runs in systems.items()}, references, metrics)
        assert single.difference("other", "one")["BLEU"].p == pytest.approx(p, abs=4 * (p * (1 - p) / 1e4) ** 0.5)


def test_a_comparison_of_runs(texts, monkeypatch):
    monkeypatch.setattr(training_runs, "TRIALS", 200)
    systems, references = {name: [run[:40] for run in runs] for name, runs in texts[0].items()}, texts[1][:40]
    comparison = compare({"one": systems["one"], "single": systems["other"][:1]}, references, train_target=references)
    assert comparison.runs == {"one": 3, "single": 1}
    assert comparison.systems["one"] == systems["one"][0]
    one = [compare({"x": [run]}, references, train_target=references) for run in systems["one"]]
    for field in ("accuracy", "lengths"):
        measured = getattr(comparison, field).values["one"]
        each = [getattr(other, field).values["x"] for other in one]
        columns = zip(*each, strict=True)
        assert measured == [None if None in column else pytest.approx(sum(column) / 3) for column in columns]
    assert comparison.scores["one"]["tokenized_bleu"] == pytest.approx(
        sum(other.scores["x"]["tokenized_bleu"] for other in one) / 3
    )
    assert comparison.against["BLEU"]["one"].p == 1
    matrix = comparison.matrices["chrF"]
    assert matrix["one", "single"].p == matrix["single", "one"].p == comparison.against["chrF"]["single"].p
    assert "METEOR (exact, stem)" in comparison.against
