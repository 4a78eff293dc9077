"""The n best translations with their scores."""

import pytest
import torch
from toy import random_ids

from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.scoring import score_pairs
from admin_nmt.decoding.search import generation
from admin_nmt.decoding.search.generation import generate_ids, search_ids
from admin_nmt.weights.exporting import standard_model

VOCABULARY = 24


@pytest.fixture
def sources() -> list[list[int]]:
    return random_ids(9, vocabulary=VOCABULARY, longest=9)["input_ids"][:]


SETTINGS = [
    {"num_beams": 5},
    {"num_beams": 4, "length_penalty": 0.6},
    {"num_beams": 3, "length_penalty": 0.0, "max_new_tokens": 6},
    {"num_beams": 3, "length_penalty": 2.0, "min_new_tokens": 4},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("stock", [False, True])
def test_same_as_generate(tiny_model, sources, options, stock):
    """Tokens and scores of its `num_return_sequences`, of one sentence after the other."""
    model = tiny_model(vocab_size=VOCABULARY)
    model = standard_model(model) if stock else model
    pad, count = model.config.pad_token_id, options["num_beams"]
    ours = search_ids(model, sources, nbest=count, batch_tokens=60, **options)
    for source, rows in zip(sources, ours, strict=True):
        most = min(2 * len(source) + 20, options.get("max_new_tokens", 99))
        limit = generation.SentenceLengthLimit(torch.tensor([most]), [0])
        found = model.generate(
            torch.tensor([source]),
            num_return_sequences=count,
            early_stopping=True,
            return_dict_in_generate=True,
            output_scores=True,
            logits_processor=[limit],
            **{"min_new_tokens": 1, "suppress_tokens": [pad]} | options | {"max_new_tokens": most + 1},
        )
        ids = [[token for token in row if token not in (0, pad)] for row in found.sequences[:, 1:].tolist()]
        assert [row.ids for row in rows] == ids
        assert [row.score for row in rows] == pytest.approx(found.sequences_scores.tolist(), abs=1e-4)
    assert all(len(rows) == count for rows in ours)


@pytest.mark.parametrize("own_search", [True, False], ids=["own search", "generate"])
def test_the_score_is_the_log_probability_over_the_length(tiny_model, sources, monkeypatch, own_search):
    monkeypatch.setattr(generation, "is_switchable", lambda model: own_search)
    model = tiny_model(vocab_size=VOCABULARY)
    found = search_ids(model, sources, nbest=3, num_beams=3, length_penalty=0.7)
    for rows, source in zip(found, sources, strict=True):
        targets = [[*row.ids, 0] for row in rows]
        totals = [sum(scores) for scores in score_pairs(model, [source] * len(rows), targets)]
        assert [row.log_prob for row in rows] == pytest.approx(totals, abs=1e-3)
        expected = [total / len(ids) ** 0.7 for total, ids in zip(totals, targets, strict=True)]
        assert [row.score for row in rows] == pytest.approx(expected, abs=1e-3)
        assert expected == sorted(expected, reverse=True)


def test_the_best_is_what_a_search_for_one_gives(tiny_model, sources):
    model = tiny_model(vocab_size=VOCABULARY)
    found = search_ids(model, sources, nbest=5, num_beams=5)
    assert [rows[0].ids for rows in found] == generate_ids(model, sources, num_beams=5)


def test_several_draws_of_a_sentence_differ_and_come_again(tiny_model, sources):
    model, draw = tiny_model(vocab_size=VOCABULARY), Sampling(seed=4)
    found = search_ids(model, sources, nbest=3, sampling=draw)
    assert search_ids(model, sources[::-1], nbest=3, sampling=draw, batch_tokens=1)[::-1] == [
        [type(row)(row.ids, pytest.approx(row.score, abs=1e-4), pytest.approx(row.log_prob, abs=1e-3)) for row in rows]
        for rows in found
    ]
    assert all(len({tuple(row.ids) for row in rows}) == 3 for rows in found)
    assert all(rows == sorted(rows, key=lambda row: -row.score) for rows in found)
    for one, rows in zip(generate_ids(model, sources, sampling=draw), found, strict=True):
        assert one in [row.ids for row in rows]
    totals = [sum(scores) for scores in score_pairs(model, sources, [[*rows[0].ids, 0] for rows in found])]
    assert [rows[0].log_prob for rows in found] == pytest.approx(totals, abs=1e-3)


def test_fewer_where_the_vocabulary_has_no_more(tiny_model, sources):
    banned = [token for token in range(1, VOCABULARY) if token != 21]
    options = {"suppress_tokens": banned, "max_new_tokens": 1}
    found = search_ids(tiny_model(vocab_size=VOCABULARY), sources, nbest=4, num_beams=4, **options)
    assert [[row.ids for row in rows] for rows in found] == [[[21]]] * len(sources)


@pytest.mark.parametrize("nbest", [0, 3])
def test_more_than_the_beam_has_is_refused(tiny_model, sources, nbest):
    with pytest.raises(ValueError, match=f"nbest is {nbest}, but num_beams is 2; give 1 to 2, or more beams"):
        search_ids(tiny_model(vocab_size=VOCABULARY), sources, nbest=nbest, num_beams=2)


@pytest.mark.parametrize("num_beams", [0, -1])
def test_no_beams(tiny_model, sources, num_beams):
    with pytest.raises(ValueError, match=f"num_beams is {num_beams}; give 1 or more"):
        search_ids(tiny_model(vocab_size=VOCABULARY), sources, num_beams=num_beams)
