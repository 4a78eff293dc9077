"""The scores: what sacreBLEU's command line says, and multi-bleu.perl's arithmetic for tokenised BLEU."""

import gzip
import json
import math
import random
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin_nmt.metrics.scores import (
    PUBLISHED,
    bleu_of,
    corpus_scores,
    meteor,
    moses_tokenize,
    published_bleu,
    reference_rows,
    tokenized_bleu,
    untested_scores,
)

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
REFERENCES = COLUMNS[0]


def all_scores(hypotheses, references, language="de"):
    scores = corpus_scores(hypotheses, references, language) | meteor(hypotheses, references, language)
    return scores | untested_scores(hypotheses, references, language)


def multi_bleu(hypotheses, references):
    """multi-bleu.perl, transcribed: clipped n-gram counts over the corpus, brevity penalty, no smoothing."""
    correct, total, lengths = Counter(), Counter(), Counter()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words, target = hypothesis.split(), reference.split()
        lengths.update(hypothesis=len(words), reference=len(target))
        for n in range(1, 5):
            ours, theirs = (Counter(zip(*(w[i:] for i in range(n)), strict=False)) for w in (words, target))
            correct[n] += (ours & theirs).total()
            total[n] += ours.total()
    if not all(correct[n] for n in range(1, 5)):
        return 0.0
    brevity = min(1.0, math.exp(1 - lengths["reference"] / lengths["hypothesis"]))
    return 100 * brevity * math.exp(sum(math.log(correct[n] / total[n]) for n in range(1, 5)) / 4)


@pytest.mark.parametrize("columns", [COLUMNS[:1], COLUMNS])
def test_scores_equal_sacrebleus_command_line(tmp_path, columns):
    files = {"hyp": HYPOTHESES} | {f"ref{number}": column for number, column in enumerate(columns)}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    references = [tmp_path / name for name in files if name != "hyp"]
    options = ["-i", tmp_path / "hyp", "-m", "bleu", "chrf", "ter", "--format", "json", "-w", "9"]
    command = [sys.executable, "-m", "sacrebleu", *references, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ours = corpus_scores(HYPOTHESES, reference_rows(columns))
    assert len(ours) == 6
    for theirs, name in zip(json.loads(done.stdout), ("bleu", "chrf", "ter"), strict=True):
        assert ours[name] == pytest.approx(theirs["score"], abs=1e-8)
        assert ours[f"{name}_signature"] == theirs["signature"]
        assert theirs["signature"].startswith(f"nrefs:{len(columns)}|")


def test_score_takes_the_tokeniser_of_the_language():
    hypotheses, references = ["我喜欢读书和写字。"], ["我喜欢看书和写字。"]
    chinese = corpus_scores(hypotheses, references, "zh")
    assert "|tok:zh|" in chinese["bleu_signature"]
    assert chinese["bleu"] > corpus_scores(hypotheses, references)["bleu"]
    assert corpus_scores(hypotheses, references, "zh-CN") == chinese


def test_text_without_spaces_has_words_too():
    lines = ["我喜欢读书和写字。", "他们在市场上买苹果。"]
    assert all_scores(lines, lines, "zh")["meteor_exact"] > 99
    assert 50 < tokenized_bleu(["我喜欢看书和写字。", lines[1]], lines, "zh-TW") < 100


def odd_pairs():
    """200 pairs of letters as words: many lines empty, of one token, without a match, much too long or too short."""
    rng = random.Random(1)
    references = [" ".join(rng.choices("abcdefgh", k=rng.randint(1, 15))) for _ in range(200)]

    def edited(word):
        """One in ten is dropped, doubled or in capitals."""
        return rng.choice(("", f"{word} {word}", word.upper())) if rng.random() < 0.1 else word

    hypotheses = [" ".join(map(edited, line.split())) for line in references]
    for row in range(0, 200, 4):
        odd = ("", "a", "x y z x y", references[row], references[row] * 3, references[row].upper(), "a b c")
        hypotheses[row] = odd[row // 4 % 7]
    return hypotheses, references


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenized_bleu_is_multi_bleu_on_odd_lines(lowercase):
    hypotheses, references = odd_pairs()
    sides = [moses_tokenize(lines, "en", lowercase=lowercase) for lines in (hypotheses, references)]
    ours = tokenized_bleu(hypotheses, references, "en", lowercase=lowercase)
    assert 0 < ours < 100
    assert ours == pytest.approx(multi_bleu(*sides), abs=1e-9)
    for row in range(200):  # a line alone is mostly too short for 4-grams, or matches none
        sides = [moses_tokenize([lines[row]], "en", lowercase=lowercase) for lines in (hypotheses, references)]
        ours = tokenized_bleu(hypotheses[row : row + 1], references[row : row + 1], "en", lowercase=lowercase)
        assert ours == pytest.approx(multi_bleu(*sides), abs=1e-9)


@pytest.mark.shared
def test_tokenised_multi30k_reference_has_the_published_length(shared):
    with gzip.open(shared / "data/multi30k/test_2016_flickr.de.gz", "rt", encoding="utf-8", newline="\n") as file:
        references = [line.rstrip("\n") for line in file]
    assert sum(len(line.split()) for line in moses_tokenize(references, "de")) == 12_103


def test_meteor_reads_words_as_moses_splits_them():
    assert meteor(["Das Haus."], ["das Häuser."], "de") == {"meteor_exact_stem": pytest.approx(100 * (1 - 0.5 / 27))}


# Several references


@pytest.mark.parametrize(("lowercase", "bleu"), [(False, "77.86"), (True, "80.47")])
def test_tokenized_bleu_is_what_multi_bleu_prints_for_three_reference_files(lowercase, bleu):
    assert f"{tokenized_bleu(HYPOTHESES, SEVERAL, 'de', lowercase=lowercase):.2f}" == bleu


def test_meteor_sums_the_counts_of_the_best_references():
    # 3 of 3 words in one chunk against the second of its references, 1 of 2 against the first of its own.
    value = meteor(["ab cd ef", "ab xy"], [["ab", "ab cd ef"], ["ab uv", "uv"]], "is")["meteor_exact"]
    precision = recall = 4 / 5
    assert value == pytest.approx(100 * 10 * precision * recall / (recall + 9 * precision) * (1 - 0.5 * (2 / 4) ** 3))


lines = st.lists(st.text("ab .", min_size=1, max_size=9), min_size=3, max_size=3)


@given(lines, lines, lines)
def test_a_reference_given_twice_changes_nothing(hypotheses, first, second):
    found = [all_scores(hypotheses, reference_rows(some), "is") for some in ([first, second], [first, second, first])]
    one, other = ({name: x for name, x in scores.items() if type(x) is float} for scores in found)
    assert other == pytest.approx(one | {"ter": other["ter"]})  # whose length is the references' mean


def test_one_reference_in_a_list_is_one_reference():
    alone, listed = (all_scores(HYPOTHESES, references, "de") for references in (COLUMNS[0], SEVERAL))
    assert all_scores(HYPOTHESES, [[line] for line in COLUMNS[0]], "de") == alone
    assert alone["bleu"] < listed["bleu"] and alone["ter"] > listed["ter"]
    assert alone["meteor_exact_stem"] < listed["meteor_exact_stem"]


@pytest.mark.parametrize(
    ("hypotheses", "references", "named"),
    [
        (["a", "b"], ["a"], "2 hypotheses against 1 references"),
        ([], [], "empty"),
        ("abc", "abc", "list"),
        (["a", "b"], [["a", "b"], ["b"]], "sentence 2 has 1 references and the first 2"),
    ],
)
def test_what_is_not_paired_is_refused(hypotheses, references, named):
    for measure in (corpus_scores, tokenized_bleu, meteor, partial(published_bleu, paper="liu2020")):
        with pytest.raises(ValueError, match=named):
            measure(hypotheses, references, "de")


def test_unknown_papers_and_languages_are_refused():
    for paper, language, named in (("vaswani2017", "de", "liu2020"), ("wang2019", "th", "'th'")):
        with pytest.raises(ValueError, match=named):
            published_bleu(["a"], ["a"], language, paper)
    with pytest.raises(ValueError, match=r"'German'.*\bde\b"):
        bleu_of("German")


# As the papers' own Perl scripts give it: numbers and tokens that they printed for these lines

PAPERS_REFERENCES = [
    "Der „Baden-Württemberg-Express“ fährt um 9-10 Uhr… oder nicht!",
    "C’est-à-dire: „Es geht“ – 3,5 % mehr & weniger.",
    "Die A-B-C-Straße, Nr. 12a, z. B. heute.",
    "Ein-Euro-Job？ Ja（nein）！",
    "Das ist ein gut-gemeinter, aber kurzer Satz.",
]
PAPERS_HYPOTHESES = [
    "Der „Baden-Württemberg-Zug“ fährt um 9-10 Uhr… oder nicht!",
    "C’est-à-dire: „Es geht“ - 3,5 % mehr & wenig.",
    "Die A-B-C-Straße, Nr. 12a, z. B. morgen.",
    "Ein-Euro-Job? Ja (nein)!",
    "Das ist ein gut gemeinter, aber kurzer Satz.",
]
# sed "s/’/'/g", tokenizer.perl -a -l de
LIU = [
    "Der „ Baden @-@ Württemberg @-@ Express “ fährt um 9 @-@ 10 Uhr … oder nicht !",
    "C &apos; est @-@ à @-@ dire : „ Es geht “ – 3,5 % mehr &amp; weniger .",
    "Die A @-@ B @-@ C @-@ Straße , Nr. 12a , z. B. heute .",
    "Ein @-@ Euro @-@ Job ？ Ja （ nein ） ！",
    "Das ist ein gut @-@ gemeinter , aber kurzer Satz .",
]
# replace-unicode-punctuation.perl, tokenizer.perl -l de, perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g'
WANG = [
    "Der „ Baden ##AT##-##AT## Württemberg ##AT##-##AT## Express &quot; "
    "fährt um 9 ##AT##-##AT## 10 Uhr ... oder nicht !",
    "C &apos; est ##AT##-##AT## à ##AT##-##AT## dire : „ Es geht &quot; – 3,5 % mehr &amp; weniger .",
    "Die A ##AT##-##AT## B-C ##AT##-##AT## Straße , Nr. 12a , z. B. heute .",
    "Ein ##AT##-##AT## Euro ##AT##-##AT## Job ? Ja ( nein ) !",
    "Das ist ein gut ##AT##-##AT## gemeinter , aber kurzer Satz .",
]
PAPERS_OTHERS = [
    "Der „Baden-Württemberg-Zug“ fährt um 9-10 Uhr… oder doch nicht!",
    "C’est-à-dire: „Es geht“ - 3,5 % mehr und weniger.",
    "Die A-B-C-Straße, Nr. 12a, z. B. morgen früh.",
    "Ein-Euro-Job? Ja!",
    "Das ist ein gut gemeinter Satz.",
]


@pytest.mark.parametrize(("paper", "tokens"), [("liu2020", LIU), ("wang2019", WANG)])
def test_tokens_are_those_of_the_authors_scripts(paper, tokens):
    assert PUBLISHED[paper](PAPERS_REFERENCES, "de") == tokens


@pytest.mark.parametrize(("paper", "bleu", "several"), [("liu2020", "74.38", "88.22"), ("wang2019", "82.34", "93.38")])
def test_published_bleu_is_what_the_authors_scripts_print(paper, bleu, several):
    """multi-bleu.perl on these tokens, to two digits, with one and with two reference files."""
    two = reference_rows([PAPERS_REFERENCES, PAPERS_OTHERS])
    assert f"{published_bleu(PAPERS_HYPOTHESES, two, 'de', paper):.2f}" == several
    assert f"{published_bleu(PAPERS_HYPOTHESES, PAPERS_REFERENCES, 'de', paper):.2f}" == bleu
    assert published_bleu(PAPERS_REFERENCES, PAPERS_REFERENCES, "de", paper) == pytest.approx(100)
