"""One BLEU: what sacreBLEU's command line says, and multi-bleu.perl's arithmetic for the tokenised one."""

import gzip
import json
import math
import random
import subprocess
import sys
from collections import Counter

import pytest

from admin_nmt.metrics import moses_tokenize, score, tokenized_bleu

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
    command = [sys.executable, "-m", "sacrebleu", folder / "ref", "-i", folder / "hyp", "-m", "bleu", "chrf", "-w", "9"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def assert_equals_command_line(folder, hypotheses, references):
    ours = score(hypotheses, references)
    for theirs, name in zip(command_line_scores(folder, hypotheses, references), ("bleu", "chrf"), strict=True):
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


def test_score_is_cased_and_of_raw_text():
    assert score(REFERENCES, REFERENCES)["bleu"] == pytest.approx(100)
    assert score([s.lower() for s in REFERENCES], REFERENCES)["bleu"] < 90
    assert "|case:mixed|" in score(HYPOTHESES, REFERENCES)["bleu_signature"]


def test_score_takes_the_tokeniser_of_the_language():
    hypotheses, references = ["我喜欢读书和写字。"], ["我喜欢看书和写字。"]
    chinese = score(hypotheses, references, "zh")
    assert "|tok:zh|" in chinese["bleu_signature"]
    assert score(HYPOTHESES, REFERENCES, "de") == score(HYPOTHESES, REFERENCES)
    assert chinese["bleu"] > score(hypotheses, references)["bleu"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenized_bleu_is_multi_bleu_on_moses_tokens(lowercase):
    sides = [moses_tokenize(lines, "de", lowercase=lowercase) for lines in (HYPOTHESES, REFERENCES)]
    ours = tokenized_bleu(HYPOTHESES, REFERENCES, "de", lowercase=lowercase)
    assert ours == pytest.approx(multi_bleu(*sides), abs=1e-9)
    assert 0 < ours < 100


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


@pytest.mark.parametrize("measure", [score, lambda h, r: tokenized_bleu(h, r, "de")])
def test_unpaired_or_no_sentences_are_refused(measure):
    with pytest.raises(ValueError, match="2 hypotheses against 1 references"):
        measure(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="list is empty"):
        measure([], [])
