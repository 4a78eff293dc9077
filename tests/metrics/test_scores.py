"""The scores: what sacreBLEU's command line says, and multi-bleu.perl's arithmetic for tokenised BLEU."""

import gzip
import json
import math
import random
import subprocess
import sys
from collections import Counter

import pytest

from admin_nmt.metrics.scores import all_scores, check_language, corpus_scores, meteor, moses_tokenize, tokenized_bleu

REFERENCES = [
    "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt.",
    "Ein Boston Terrier läuft über saftig-grünes Gras vor einem weißen Zaun.",
    "Sie fragte: „Kommst du um 12:30 Uhr?“",
    "Das kostet 1.299,50 € (inkl. MwSt.).",
    "Fünf Leute stehen & warten.",
]
HYPOTHESES = [
    "Ein Mann mit einem orangen Hut starrt etwas an.",
    "Ein Boston Terrier läuft über das saftig-grüne Gras vor einem weißen Zaun.",
    'Sie fragte: "Kommst du um 12:30 Uhr?"',
    "das kostet 1.299,50 € inkl. MwSt.",
    "",
]


def perturbed(sentences, seed=0):
    """Every sentence with a word dropped, doubled, swapped or lower-cased, or left alone."""
    rng = random.Random(seed)
    edits = (
        lambda words, i: words[:i] + words[i + 1 :],
        lambda words, i: words[: i + 1] + words[i:],
        lambda words, i: words[:i] + words[i : i + 2][::-1] + words[i + 2 :],
        lambda words, i: [*words[:i], words[i].lower(), *words[i + 1 :]],
        lambda words, i: words,
    )
    return [" ".join(rng.choice(edits)(words := s.split(), rng.randrange(len(words)))) for s in sentences]


def german_test_set(shared):
    with gzip.open(shared / "data/multi30k/test_2016_flickr.de.gz", "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file]


def command_line_scores(folder, hypotheses, references):
    for name, lines in (("hyp", hypotheses), ("ref", references)):
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    options = ["-m", "bleu", "chrf", "ter", "--format", "json", "-w", "9"]
    command = [sys.executable, "-m", "sacrebleu", folder / "ref", "-i", folder / "hyp", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def assert_equals_command_line(folder, hypotheses, references):
    ours = corpus_scores(hypotheses, references)
    assert len(ours) == 6
    for theirs, name in zip(command_line_scores(folder, hypotheses, references), ("bleu", "chrf", "ter"), strict=True):
        assert ours[name] == pytest.approx(theirs["score"], abs=1e-8)
        assert ours[f"{name}_signature"] == theirs["signature"]


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


def test_score_equals_sacrebleu_command_line(tmp_path):
    assert_equals_command_line(tmp_path, HYPOTHESES, REFERENCES)


@pytest.mark.shared
def test_score_equals_sacrebleu_command_line_on_multi30k(tmp_path, shared):
    references = german_test_set(shared)[:50]
    assert_equals_command_line(tmp_path, perturbed(references), references)


def test_score_without_ter_is_the_same_but_for_it():
    whole, quick = corpus_scores(HYPOTHESES, REFERENCES), corpus_scores(HYPOTHESES, REFERENCES, with_ter=False)
    assert list(quick) == ["bleu", "bleu_signature", "chrf", "chrf_signature"]
    assert whole == quick | {name: whole[name] for name in ("ter", "ter_signature")}


def test_ter_counts_a_moved_block_once():
    words = ["a b c d e f g h", "d e f g h a b c"]
    assert corpus_scores(words[:1], words[1:])["ter"] == pytest.approx(100 / 8)
    assert corpus_scores(words, words)["ter"] == 0


def test_score_is_cased_and_of_raw_text():
    assert corpus_scores(REFERENCES, REFERENCES)["bleu"] == pytest.approx(100)
    assert corpus_scores([s.lower() for s in REFERENCES], REFERENCES)["bleu"] < 90
    assert "|case:mixed|" in corpus_scores(HYPOTHESES, REFERENCES)["bleu_signature"]


def test_score_takes_the_tokeniser_of_the_language():
    hypotheses, references = ["我喜欢读书和写字。"], ["我喜欢看书和写字。"]
    chinese = corpus_scores(hypotheses, references, "zh")
    assert "|tok:zh|" in chinese["bleu_signature"]
    assert corpus_scores(HYPOTHESES, REFERENCES, "de") == corpus_scores(HYPOTHESES, REFERENCES)
    assert chinese["bleu"] > corpus_scores(hypotheses, references)["bleu"]
    assert corpus_scores(hypotheses, references, "zh-CN") == chinese


def test_text_without_spaces_has_words_too():
    lines = ["我喜欢读书和写字。", "他们在市场上买苹果。"]
    scores = all_scores(lines, lines, "zh")
    assert [scores[name] for name in ("tokenized_bleu", "tokenized_lowercase_bleu")] == pytest.approx([100, 100])
    assert scores["meteor_exact"] > 99
    assert tokenized_bleu(["我喜欢看书和写字。", lines[1]], lines, "zh-TW") > 50


@pytest.mark.parametrize("use", [check_language, lambda code: tokenized_bleu(["a"], ["a"], code)])
@pytest.mark.parametrize(
    ("language", "hint"),
    [
        ("German", r"did you mean de\?"),
        ("deu", r"did you mean de\?"),
        ("dee", r"did you mean .*\bde\b.*\?"),
        ("de AT", "give the two-letter code, such as de"),
    ],
)
def test_what_is_no_language_code_is_refused(use, language, hint):
    with pytest.raises(ValueError, match=f"language '{language}': is no known code; {hint}"):
        use(language)


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_a_tokeniser_that_is_not_installed_is_named_with_its_remedy(monkeypatch, language):
    monkeypatch.setattr(f"sacrebleu.tokenizers.tokenizer_{language}_mecab.MeCab", None)
    for use in (check_language, lambda code: corpus_scores(["a"], ["a"], code)):
        with pytest.raises(ImportError, match=rf"pip install 'sacrebleu\[{language}\]'"):
            use(language)
    check_language("de")


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenized_bleu_is_multi_bleu_on_moses_tokens(lowercase):
    sides = [moses_tokenize(lines, "de", lowercase=lowercase) for lines in (HYPOTHESES, REFERENCES)]
    ours = tokenized_bleu(HYPOTHESES, REFERENCES, "de", lowercase=lowercase)
    assert ours == pytest.approx(multi_bleu(*sides), abs=1e-9)
    assert 0 < ours < 100


def odd_pairs():
    """200 pairs of letters as words: many lines empty, of one token, without a match, much too long or too short."""
    rng = random.Random(1)
    references = [" ".join(rng.choices("abcdefgh", k=rng.randint(1, 15))) for _ in range(200)]
    hypotheses = perturbed(references, 1)
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


def test_cased_tokenized_bleu_tells_case_apart():
    shouted = [line.upper() for line in REFERENCES]
    assert tokenized_bleu(shouted, REFERENCES, "de") > 50
    assert tokenized_bleu(shouted, REFERENCES, "de", lowercase=False) == 0


@pytest.mark.parametrize("hypotheses", [["", "", ""], ["a", "b", "c"], ["x y z v w", "", "x"]])
def test_tokenized_bleu_of_nothing_in_common_is_zero(hypotheses):
    references = ["a b c d e", "b c d e f", "c d e f g"]
    assert tokenized_bleu(hypotheses, references, "en") == multi_bleu(hypotheses, references) == 0


def test_tokenized_bleu_is_zero_without_a_common_4_gram():
    assert tokenized_bleu(["a b c x"], ["a b c y"], "en") == 0


def test_moses_tokens_are_lower_cased_and_normalised():
    assert moses_tokenize(["Er sagte: „Ja“, z.B. 3.5 %!"], "de") == ['er sagte : " ja " , z.b. 3.5 % !']


@pytest.mark.shared
def test_tokenised_multi30k_reference_has_the_published_length(shared):
    references = german_test_set(shared)
    assert sum(len(line.split()) for line in moses_tokenize(references, "de")) == 12_103


@pytest.mark.shared
def test_tokenized_bleu_is_multi_bleu_on_multi30k(shared):
    references = german_test_set(shared)[:200]
    hypotheses = perturbed(references)
    expected = multi_bleu(moses_tokenize(hypotheses, "de"), moses_tokenize(references, "de"))
    assert tokenized_bleu(hypotheses, references, "de") == pytest.approx(expected, abs=1e-9)


def test_all_scores_are_each_score_under_its_name(monkeypatch):
    monkeypatch.setenv("PATH", "")  # no COMET
    scores = all_scores(HYPOTHESES, REFERENCES, "de", sources=HYPOTHESES)
    expected = corpus_scores(HYPOTHESES, REFERENCES, "de") | meteor(HYPOTHESES, REFERENCES, "de")
    expected["tokenized_bleu"] = tokenized_bleu(HYPOTHESES, REFERENCES, "de", lowercase=False)
    expected["tokenized_lowercase_bleu"] = tokenized_bleu(HYPOTHESES, REFERENCES, "de")
    assert scores == expected
    assert 0 < scores["meteor_exact_stem"] < 100
    with pytest.raises(ValueError, match="5 hypotheses against 1 sources"):
        all_scores(HYPOTHESES, REFERENCES, "de", sources=["a"])


def test_meteor_reads_words_as_moses_splits_them():
    assert meteor(["Das Haus."], ["das Häuser."], "de") == {"meteor_exact_stem": pytest.approx(100 * (1 - 0.5 / 27))}


@pytest.mark.parametrize(
    "measure", [corpus_scores, lambda h, r: tokenized_bleu(h, r, "de"), lambda h, r: meteor(h, r, "de")]
)
def test_unpaired_or_no_sentences_are_refused(measure):
    with pytest.raises(ValueError, match="2 hypotheses against 1 references"):
        measure(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="list is empty"):
        measure([], [])
    with pytest.raises(ValueError, match="put a single one into a list"):
        measure("abc", "abc")
