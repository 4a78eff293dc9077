"""Prefixes and forbidden texts: whatever the search, and however a text is cut into pieces."""

import random

import pytest
import torch
from plain_search import plain_beam_search
from toy import SHIFT, random_ids

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.search import generation
from admin_nmt.decoding.search.constraints import ForbiddenTexts
from admin_nmt.decoding.search.generation import generate_ids, search_ids

VOCABULARY = 12
PAD, EOS = VOCABULARY - 1, 0
PREFIXES = [[3, 4], [], [5], [6, 6, 6, 7]]


@pytest.fixture
def model(tiny_model) -> AdminForConditionalGeneration:
    return tiny_model(vocab_size=VOCABULARY, encoder_layers=2, decoder_layers=1)


@pytest.fixture
def sources() -> list[list[int]]:
    return random_ids(4, vocabulary=VOCABULARY, longest=6)["input_ids"][:]


def by_generate(monkeypatch, *args, **options):
    """What the search gives where only `generate` may be used."""
    with monkeypatch.context() as patch:
        patch.setattr(generation, "is_switchable", lambda model: False)
        return search_ids(*args, **options)


def assert_alike(ours, theirs):
    assert [[row.ids for row in rows] for rows in ours] == [[row.ids for row in rows] for rows in theirs]
    for name in ("score", "log_prob"):
        mine, other = ([getattr(row, name) for rows in both for row in rows] for both in (ours, theirs))
        assert mine == pytest.approx(other, abs=1e-3)


@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (4, 1.0), (3, 0.0)])
def test_a_prefix_in_both_searches_and_in_a_plain_one(model, sources, monkeypatch, beams, penalty):
    options = {"nbest": beams, "num_beams": beams, "length_penalty": penalty, "prefixes": PREFIXES}
    found = search_ids(model, sources, **options)
    assert_alike(found, by_generate(monkeypatch, model, sources, **options))
    for rows, source, prefix in zip(found, sources, PREFIXES, strict=True):
        expected = plain_beam_search([model], source, beams, penalty, prefix)
        assert [row.ids for row in rows] == [ids for _, ids in expected]
        assert all(row.ids[: len(prefix)] == prefix for row in rows)
    assert found[0][0].ids != generate_ids(model, sources, num_beams=beams, length_penalty=penalty)[0]


def test_a_prefix_is_what_generate_continues(model, sources):
    """Without length penalty the probability of the prefix, which counts here, changes no order."""
    options = {"num_beams": 3, "length_penalty": 0.0}
    for source, prefix in zip(sources, PREFIXES, strict=True):
        most = 2 * len(source) + 20
        output = model.generate(
            torch.tensor([source]),
            decoder_input_ids=torch.tensor([[PAD, *prefix]]),
            early_stopping=True,
            max_new_tokens=most + 1 - len(prefix),
            min_new_tokens=0 if prefix else 1,
            suppress_tokens=[PAD],
            logits_processor=[generation.SentenceLengthLimit(torch.tensor([most]), [EOS])],
            **options,
        )
        expected = [token for token in output[0, 1:].tolist() if token not in (PAD, EOS)]
        assert generate_ids(model, [source], prefixes=[prefix], **options) == [expected]


def test_samples_have_the_prefix_too(model, sources):
    for found, prefix in zip(
        generate_ids(model, sources, sampling=Sampling(), prefixes=PREFIXES), PREFIXES, strict=True
    ):
        assert found[: len(prefix)] == prefix
        assert len(found) > len(prefix)


def test_a_prefix_that_is_longer_than_the_translation_may_be_is_refused(model, sources):
    with pytest.raises(ValueError, match="the prefix of sentence 2 has 9 tokens, but its translation may have 5; give"):
        generate_ids(model, sources, prefixes=[[], [3] * 9, [], []], max_new_tokens=5)


def test_a_prefix_may_hold_what_is_banned(model, sources, monkeypatch):
    options = {"num_beams": 2, "prefixes": [[3, 4]] * 4, "suppress_tokens": [3, PAD], "bad_words_ids": [[3, 4]]}
    for found in (search_ids(model, sources, **options), by_generate(monkeypatch, model, sources, **options)):
        assert all(rows[0].ids[:2] == [3, 4] and 3 not in rows[0].ids[2:] for rows in found)


PIECES = ["", "", " a", "a", "b", " ab", "ab", " ", "ba", ",", "c", ""]  # EOS, <unk>, ... <pad>
TEXTS = [" ab", "ab", " ab a", "ab a", " ,c", ",c"]


def forbidden() -> ForbiddenTexts:
    return ForbiddenTexts(TEXTS, PIECES, [piece[-1:].isalpha() for piece in PIECES])


def banned_by_the_text(ids: list[int]) -> set[int]:
    """Tokens that complete a forbidden text, by looking at the text itself."""
    found = set()
    for token, piece in enumerate(PIECES):
        text = " " + "".join(PIECES[i] for i in ids) + piece
        for phrase in ("ab", "ab a", ",c"):
            before = text[: -len(phrase)][-1:]
            if piece and text.endswith(phrase) and (not phrase[0].isalpha() or not before.isalpha()):
                # The phrase begins where a piece does, or its space does.
                cuts = [len(text) - len(piece) - sum(len(PIECES[i]) for i in ids[k:]) for k in range(len(ids) + 1)]
                start = len(text) - len(phrase)
                if start in cuts or (start - 1 in cuts and text[start - 1] == " "):
                    found.add(token)
    return found


def test_every_way_to_cut_a_forbidden_text_is_banned():
    draw, ban, seen = random.Random(SHIFT), forbidden(), set()
    for _ in range(300):
        ids = draw.choices(range(2, PAD), k=draw.randint(0, 7))
        scores = ban(torch.tensor([[PAD, *ids]]), torch.zeros(1, VOCABULARY))
        expected = banned_by_the_text(ids)
        assert set((scores[0] == -torch.inf).nonzero().flatten().tolist()) == expected, ids
        seen |= expected
    assert len(seen) > 4


@pytest.mark.parametrize("beams", [1, 4])
def test_no_hypothesis_holds_a_forbidden_text(model, sources, monkeypatch, beams):
    """The model would write it, and `generate` under the same ban finds the same."""
    words = ["", *(f" {letter}" for letter in "abcdefghij"), ""]
    options = {"nbest": beams, "num_beams": beams, "max_new_tokens": 12}

    def texts(results) -> list[str]:
        return ["".join(words[i] for i in row.ids) + " " for rows in results for row in rows]

    free = texts(search_ids(model, sources, **options))
    phrases = sorted({text[:4] for text in free if len(text) > 4})  # the first two words of each
    ban = ForbiddenTexts(phrases, words, [word != "" for word in words])
    found = search_ids(model, sources, processors=[ban], **options)
    assert_alike(found, by_generate(monkeypatch, model, sources, processors=[ban], **options))
    assert phrases
    assert not any(phrase in text for text in texts(found) for phrase in phrases)


def test_what_the_vocabulary_cannot_spell_is_refused():
    with pytest.raises(ValueError, match="' xyz' cannot be forbidden: the target vocabulary cannot spell it"):
        ForbiddenTexts([" xyz"], PIECES, [False] * len(PIECES))
