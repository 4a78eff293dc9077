"""Beam search: against a plain reference, and the same whatever the batch."""

import math

import pytest
import torch
from plain_search import EOS, PAD, VOCABULARY

from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.scoring import score_pairs
from admin_nmt.decoding.search import generation
from admin_nmt.decoding.search.generation import generate_ids, search_ids
from admin_nmt.decoding.search.search_settings import LENGTH_FACTOR, LENGTH_OFFSET, generation_config
from admin_nmt.weights.exporting import standard_model


@pytest.mark.parametrize("beams", [1, 5])
def test_does_not_depend_on_the_batch(model, sources, beams):
    together = generate_ids(model, sources, num_beams=beams, batch_tokens=4096)
    assert len({len(ids) for ids in together}) > 1
    assert all(ids and not {PAD, EOS} & set(ids) for ids in together)
    assert generate_ids(model, sources, num_beams=beams, batch_tokens=1) == together
    assert generate_ids(model, sources[::-1], num_beams=beams, batch_tokens=40) == together[::-1]


@pytest.mark.parametrize("never", [{"sequence_bias": {(EOS,): -50.0}}, {"min_new_tokens": 99}])
@pytest.mark.parametrize(("positions", "most"), [(64, None), (64, 25), (24, 40)])
def test_a_model_that_never_ends_stops_at_its_limits(tiny_model, sources, never, positions, most):
    """Limits are those of each sentence, of the caller and of the model's positions, in both searches."""
    model = tiny_model(vocab_size=VOCABULARY, max_position_embeddings=positions)
    outputs = generate_ids(model, sources, num_beams=2, max_new_tokens=most, **never)
    own = [LENGTH_FACTOR * len(source) + LENGTH_OFFSET for source in sources]
    assert [len(ids) for ids in outputs] == [min(limit, positions - 1, most or limit) for limit in own]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"num_beams": VOCABULARY + 1}, "num_beams"),
        ({"num_beams": 2, "nbest": 3}, "nbest"),
        ({"num_return_sequences": 2}, "num_return_sequences"),
        ({"sampling": Sampling(), "sequence_bias": {(EOS,): -50.0}}, "sequence_bias"),
        ({"prefixes": [[3] * 9] * 12, "max_new_tokens": 5}, "prefix"),
    ],
)
def test_settings_that_no_search_has_are_refused(model, sources, options, field):
    with pytest.raises(ValueError, match=field):
        search_ids(model, sources, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 4},
        {"sampling": Sampling(top_k=3)},
        {"num_beams": 4, "repetition_penalty": 1.1},  # a search by `generate`
    ],
)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_no_translation(model, sources, options, value):
    with torch.no_grad():
        model.model.decoder.layers[0].fc2.bias[0] = value
    model.name_or_path = "runs/x"
    with pytest.raises(ValueError, match=r"^runs/x"):
        generate_ids(model, sources, **options)
    with pytest.raises(ValueError, match=r"^runs/x"):
        score_pairs(model, sources, sources)


def test_lengths_that_count_the_start_are_heeded(model, sources):
    """`max_length` and `min_length` of `generate`, in the search here and where it hands over."""
    never, always = {"sequence_bias": {(EOS,): -50.0}}, {"sequence_bias": {(EOS,): 50.0}}
    for options in ({}, {"repetition_penalty": 1.1}):
        assert {len(ids) for ids in generate_ids(model, sources, max_length=6, **never, **options)} == {5}
        assert {len(ids) for ids in generate_ids(model, sources, min_length=4, **always, **options)} == {3}
    assert {len(ids) for ids in generate_ids(model, sources, max_length=9, max_new_tokens=4, **never)} == {4}


def test_the_models_own_settings_stand_beside_the_searchs(model, sources):
    model.generation_config.update(suppress_tokens=[3], min_new_tokens=4, num_beams=3)
    config = generation_config(model.generation_config, PAD, {"suppress_tokens": [5]})
    assert config.suppress_tokens == [3, 5, PAD] and config.min_new_tokens == 4
    found = generate_ids(model, sources, num_beams=None)
    assert found == generate_ids(model, sources, num_beams=3)
    assert all(3 not in ids and len(ids) >= 4 for ids in found)


NBEST = [
    {"num_beams": 4, "length_penalty": 0.6},
    {"num_beams": 3, "length_penalty": 0.0, "max_new_tokens": 6},
    {"num_beams": 3, "length_penalty": 2.0, "min_new_tokens": 4},
]


@pytest.mark.parametrize("options", NBEST, ids=str)
@pytest.mark.parametrize("stock", [False, True])
def test_the_n_best_are_those_of_generate(model, sources, options, stock):
    """Tokens and scores of its `num_return_sequences`, of one sentence after the other."""
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
def test_the_score_is_the_log_probability_over_the_length(model, sources, monkeypatch, own_search):
    monkeypatch.setattr(generation, "is_switchable", lambda model: own_search)
    found = search_ids(model, sources, nbest=3, num_beams=3, length_penalty=0.7)
    for rows, source in zip(found, sources, strict=True):
        targets = [[*row.ids, 0] for row in rows]
        totals = [sum(scores) for scores in score_pairs(model, [source] * len(rows), targets)]
        assert [row.log_prob for row in rows] == pytest.approx(totals, abs=1e-3)
        expected = [total / len(ids) ** 0.7 for total, ids in zip(totals, targets, strict=True)]
        assert [row.score for row in rows] == pytest.approx(expected, abs=1e-3)
        assert expected == sorted(expected, reverse=True)


def test_several_draws_of_a_sentence_differ_and_come_again(model, sources):
    draw = Sampling(seed=4)
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


def test_fewer_of_the_n_best_where_the_vocabulary_has_no_more(model, sources):
    banned = [token for token in range(1, VOCABULARY) if token != 7]
    options = {"suppress_tokens": banned, "max_new_tokens": 1}
    found = search_ids(model, sources, nbest=4, num_beams=4, **options)
    assert [[row.ids for row in rows] for rows in found] == [[[7]]] * len(sources)
