"""Prefixes and forbidden texts: whatever the search, and however a text is cut into pieces."""

import random

import pytest
import torch
from plain_search import PAD, VOCABULARY, plain_beam_search
from toy import SHIFT

from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.search import generation
from admin_nmt.decoding.search.constraints import ForbiddenTexts
from admin_nmt.decoding.search.generation import generate_ids, search_ids

PREFIXES = [[3, 4], [], [5], [6, 6, 6, 7]]


@pytest.fixture
def sources(sources) -> list[list[int]]:
    return sources[: len(PREFIXES)]


def by_generate(monkeypatch, *args, **options):
    """Results of a search for which only `generate` may be used."""
    with monkeypatch.context() as patch:
        patch.setattr(generation, "is_switchable", lambda model: False)
        return search_ids(*args, **options)


def assert_alike(ours, theirs):
    assert [[row.ids for row in rows] for rows in ours] == [[row.ids for row in rows] for rows in theirs]
    for name in ("score", "log_prob"):
        mine, other = ([getattr(row, name) for rows in both for row in rows] for both in (ours, theirs))
        assert mine == pytest.approx(other, abs=1e-3)


@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (4, 0.6), (3, 0.0)])
@pytest.mark.parametrize("prefixes", [None, PREFIXES], ids=["free", "prefixes"])
def test_both_searches_agree_with_a_plain_one(model, sources, monkeypatch, prefixes, beams, penalty):
    """In all that ended, with its scores."""
    options = {"nbest": beams, "num_beams": beams, "length_penalty": penalty, "prefixes": prefixes}
    found = search_ids(model, sources, **options)
    assert_alike(found, by_generate(monkeypatch, model, sources, **options))
    for rows, source, prefix in zip(found, sources, prefixes or [[]] * 4, strict=True):
        expected = plain_beam_search([model], source, beams, penalty, prefix)
        assert [row.ids for row in rows] == [ids for _, ids in expected]
        assert [row.score for row in rows] == pytest.approx([score for score, _ in expected], abs=1e-4)
        assert all(row.ids[: len(prefix)] == prefix for row in rows)


def test_samples_have_the_prefix_too(model, sources):
    for found, prefix in zip(
        generate_ids(model, sources, sampling=Sampling(), prefixes=PREFIXES), PREFIXES, strict=True
    ):
        assert found[: len(prefix)] == prefix
        assert len(found) > len(prefix)


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


def test_a_prefix_may_hold_what_is_banned(model, sources, monkeypatch):
    options = {"num_beams": 2, "prefixes": [[3, 4]] * 4, "suppress_tokens": [3, PAD], "bad_words_ids": [[3, 4]]}
    for found in (search_ids(model, sources, **options), by_generate(monkeypatch, model, sources, **options)):
        assert all(rows[0].ids[:2] == [3, 4] and 3 not in rows[0].ids[2:] for rows in found)
