"""Several references: what sacreBLEU's command line, multi-bleu.perl and NLTK's METEOR say of the same lines."""

import json
import subprocess
import sys
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin_nmt.metrics.meteor import Meteor
from admin_nmt.metrics.published_bleu import published_bleu
from admin_nmt.metrics.references import reference_columns, reference_rows
from admin_nmt.metrics.scores import all_scores, corpus_scores, meteor, tokenized_bleu

HYPOTHESES = [
    "Ein Mann mit einem orangen Hut starrt etwas an.",
    "Ein Boston Terrier läuft über das saftig-grüne Gras vor einem weißen Zaun.",
    'Sie fragte: "Kommst du um 12:30 Uhr?"',
    "das kostet 1.299,50 € inkl. MwSt.",
    "",
]
COLUMNS = [
    [
        "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
        "Ein Boston Terrier läuft über saftig-grünes Gras vor einem weißen Zaun.",
        "Sie fragte: „Kommst du um 12:30 Uhr?“",
        "Das kostet 1.299,50 € (inkl. MwSt.).",
        "Fünf Leute stehen & warten.",
    ],
    [
        "Ein Mann mit orangem Hut starrt auf etwas.",
        "Ein Boston Terrier rennt vor einem weißen Zaun über das saftig-grüne Gras.",
        'Sie fragte: "Kommst du um halb eins?"',
        "Es kostet 1.299,50 € inkl. MwSt.",
        "Fünf Leute warten im Stehen, alle zusammen.",
    ],
    [
        "Etwas wird von einem Mann mit einem orangen Hut angestarrt.",
        "Der Boston Terrier läuft über Gras.",
        "„Kommst du um 12:30 Uhr?“, fragte sie.",
        "Das kostet mit MwSt. 1.299,50 €.",
        "Fünf stehen da.",
    ],
]
SEVERAL = reference_rows(COLUMNS)


def test_scores_equal_sacrebleus_command_line(tmp_path):
    files = {"hyp": HYPOTHESES} | {f"ref{number}": column for number, column in enumerate(COLUMNS)}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    references = [tmp_path / name for name in files if name != "hyp"]
    options = ["-i", tmp_path / "hyp", "-m", "bleu", "chrf", "ter", "--format", "json", "-w", "9"]
    command = [sys.executable, "-m", "sacrebleu", *references, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ours = corpus_scores(HYPOTHESES, SEVERAL)
    for theirs, name in zip(json.loads(done.stdout), ("bleu", "chrf", "ter"), strict=True):
        assert ours[name] == pytest.approx(theirs["score"], abs=1e-8)
        assert ours[f"{name}_signature"] == theirs["signature"]
        assert theirs["signature"].startswith("nrefs:3|")


@pytest.mark.parametrize(("lowercase", "bleu"), [(False, "77.86"), (True, "80.47")])
def test_tokenized_bleu_is_what_multi_bleu_prints_for_three_reference_files(lowercase, bleu):
    assert f"{tokenized_bleu(HYPOTHESES, SEVERAL, 'de', lowercase=lowercase):.2f}" == bleu


@pytest.mark.parametrize(("paper", "bleu"), [("liu2020", "88.22"), ("wang2019", "93.38")])
def test_published_bleu_is_what_the_authors_scripts_print_for_two_reference_files(paper, bleu):
    from test_published_bleu import HYPOTHESES, REFERENCES

    others = [
        "Der „Baden-Württemberg-Zug“ fährt um 9-10 Uhr… oder doch nicht!",
        "C’est-à-dire: „Es geht“ - 3,5 % mehr und weniger.",
        "Die A-B-C-Straße, Nr. 12a, z. B. morgen früh.",
        "Ein-Euro-Job? Ja!",
        "Das ist ein gut gemeinter Satz.",
    ]
    several = reference_rows([REFERENCES, others])
    assert f"{published_bleu(HYPOTHESES, several, 'de', paper):.2f}" == bleu


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
    """Of words without a repetition, where all alignments are the same; without NLTK's data, so without synonyms."""
    nltk_meteor = pytest.importorskip("nltk.translate.meteor_score")

    class NoWordNet:
        synsets = staticmethod(lambda word: [])

    ours, theirs = hypothesis.split(), [reference.split() for reference in references]
    meteor = Meteor("en")
    expected = nltk_meteor.meteor_score(theirs, ours, wordnet=NoWordNet)
    assert meteor.score(meteor.counts(ours, theirs)) == pytest.approx(100 * expected)


def test_meteor_sums_the_counts_of_the_best_references():
    # 3 of 3 words in one chunk against the second of its references, 1 of 2 against the first of its own.
    value = meteor(["ab cd ef", "ab xy"], [["ab", "ab cd ef"], ["ab uv", "uv"]], "is")["meteor_exact"]
    precision = recall = 4 / 5
    assert value == pytest.approx(100 * 10 * precision * recall / (recall + 9 * precision) * (1 - 0.5 * (2 / 4) ** 3))


lines = st.lists(st.text("ab .", min_size=1, max_size=9), min_size=3, max_size=3)


@given(lines, lines, lines)
def test_a_reference_given_twice_changes_nothing(hypotheses, first, second):
    several = partial(all_scores, hypotheses, language="is")
    numbers = [
        {name: value for name, value in several(references=reference_rows(columns)).items() if type(value) is float}
        for columns in ([first, second], [first, second, first])
    ]
    assert numbers[1] == pytest.approx({**numbers[0], "ter": numbers[1]["ter"]})  # whose length is the references' mean


def test_one_reference_in_a_list_is_one_reference():
    alone, listed = (all_scores(HYPOTHESES, references, "de") for references in (COLUMNS[0], SEVERAL))
    assert all_scores(HYPOTHESES, [[line] for line in COLUMNS[0]], "de") == alone
    assert alone["bleu"] < listed["bleu"] and alone["ter"] > listed["ter"]
    assert alone["meteor_exact_stem"] < listed["meteor_exact_stem"]


def test_another_number_of_references_is_refused():
    with pytest.raises(ValueError, match="sentence 2 has 1 references and the first 2"):
        corpus_scores(["a", "b"], [["a", "b"], ["b"]])
    with pytest.raises(ValueError, match="sentence 1 has 0 references"):
        reference_columns([[], []])
