"""Beam search: against a plain reference, and the same whatever the batch."""

import logging
import math

import pytest
import torch
from plain_search import plain_beam_search
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.scoring import score_pairs
from admin_nmt.decoding.search import generation
from admin_nmt.decoding.search.generation import generate_ids, search_ids
from admin_nmt.decoding.search.search_settings import LENGTH_FACTOR, LENGTH_OFFSET, generation_config

VOCABULARY = 12
PAD, EOS = VOCABULARY - 1, 0


@pytest.fixture
def model(tiny_model) -> AdminForConditionalGeneration:
    return tiny_model(vocab_size=VOCABULARY, encoder_layers=2, decoder_layers=1)


@pytest.fixture
def sources() -> list[list[int]]:
    return random_ids(12, vocabulary=VOCABULARY, longest=6)["input_ids"][:]


@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (3, 1.0), (4, 0.6), (4, 0.0)])
def test_agrees_with_a_plain_beam_search(model, sources, beams, penalty):
    """In all that ended, with its scores."""
    found = search_ids(model, sources[:4], nbest=beams, num_beams=beams, length_penalty=penalty)
    for rows, source in zip(found, sources[:4], strict=True):
        expected = plain_beam_search([model], source, beams, penalty)
        assert [row.ids for row in rows] == [ids for _, ids in expected]
        assert [row.score for row in rows] == pytest.approx([score for score, _ in expected], abs=1e-4)
    assert generate_ids(model, sources[:4], num_beams=beams, length_penalty=penalty) == [rows[0].ids for rows in found]


@pytest.mark.parametrize("beams", [1, 5])
def test_does_not_depend_on_the_batch(model, sources, beams):
    together = generate_ids(model, sources, num_beams=beams, batch_tokens=4096)
    assert len({len(ids) for ids in together}) > 1
    assert generate_ids(model, sources, num_beams=beams, batch_tokens=1) == together
    assert generate_ids(model, sources[::-1], num_beams=beams, batch_tokens=40) == together[::-1]


def test_gives_text_tokens_alone_and_never_nothing(model, sources):
    for ids in generate_ids(model, sources, num_beams=3):
        assert ids
        assert not {PAD, EOS} & set(ids)


def test_a_model_that_never_ends_stops_at_the_limit_of_each_sentence(model, sources):
    outputs = generate_ids(model, sources, num_beams=2, sequence_bias={(EOS,): -50.0})
    assert [len(ids) for ids in outputs] == [LENGTH_FACTOR * len(source) + LENGTH_OFFSET for source in sources]


@pytest.mark.parametrize("most", [3, 25])
def test_the_callers_limit_holds_besides_that_of_each_sentence(model, sources, most):
    outputs = generate_ids(model, sources, num_beams=2, max_new_tokens=most, sequence_bias={(EOS,): -50.0})
    own = [LENGTH_FACTOR * len(source) + LENGTH_OFFSET for source in sources]
    assert [len(ids) for ids in outputs] == [min(most, limit) for limit in own]


def test_no_translation_is_longer_than_the_positions_of_the_model(tiny_model):
    model = tiny_model(vocab_size=VOCABULARY, max_position_embeddings=24)
    sources = [[3, EOS], [*range(2, 10), EOS]]
    for most in (None, 40):
        found = generate_ids(model, sources, num_beams=2, max_new_tokens=most, sequence_bias={(EOS,): -50.0})
        assert [len(ids) for ids in found] == [23, 23]


@pytest.mark.parametrize("own", [{"max_length": 64}, {"max_length": None, "max_new_tokens": 63}], ids=str)
def test_generate_has_one_limit_whatever_the_models_configuration_says(model, sources, own, caplog):
    """It warns where there are two."""
    model.generation_config.update(**own)
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    outputs = generate_ids(model, sources, num_beams=1, max_new_tokens=5, sequence_bias={(EOS,): -50.0})
    logger.removeHandler(caplog.handler)
    assert [len(ids) for ids in outputs] == [5] * len(sources)
    assert not caplog.records


def test_any_of_several_end_tokens_ends_a_sentence(model, sources):
    ends = [EOS, generate_ids(model, sources, num_beams=2)[0][-1]]  # so the second end changes something
    outputs = generate_ids(model, sources, num_beams=2, eos_token_id=ends)
    assert not any(set(ends) & set(ids) for ids in outputs)
    never = {(end,): -50.0 for end in ends}
    limited = generate_ids(model, sources, num_beams=2, eos_token_id=ends, max_new_tokens=4, sequence_bias=never)
    assert [len(ids) for ids in limited] == [4] * len(sources)


def test_early_stopping_is_the_default_that_a_caller_may_change(model):
    default, pad = model.generation_config, PAD
    assert generation_config(default, pad, {"num_beams": 2}).early_stopping is True
    assert generation_config(default, pad, {"num_beams": 2, "early_stopping": False}).early_stopping is False
    assert generation_config(default, pad, {"num_beams": 1}).early_stopping is not True


def test_leaves_model_and_settings_as_they_were(model, sources, monkeypatch):
    beams, search = [], generation.beam_search
    monkeypatch.setattr(
        generation, "beam_search", lambda *args: beams.append(args[2].settings.num_beams) or search(*args)
    )
    model.train()
    model.generation_config.num_beams = 3
    before = model.generation_config.to_dict()
    with_own_settings = generate_ids(model, sources, num_beams=None)
    assert model.training
    assert model.generation_config.to_dict() == before
    assert with_own_settings == generate_ids(model, sources, num_beams=3)
    generate_ids(model, sources, num_beams=1)
    assert beams == [3, 3, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 1},
        {"num_beams": 4},
        {"sampling": Sampling()},
        {"sampling": Sampling(top_k=3)},
        {"num_beams": 1, "repetition_penalty": 1.1},  # a search by `generate`
        {"num_beams": 4, "repetition_penalty": 1.1},
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length_penalty": math.nan}, "length_penalty"),
        ({"num_beams": 13}, "num_beams"),
    ],
)
def test_settings_that_no_search_has_are_refused(model, sources, options, message):
    with pytest.raises(ValueError, match=message):
        generate_ids(model, sources, **options)


def test_a_model_without_end_of_sentence_is_refused(model, sources):
    model.generation_config.eos_token_id = None
    with pytest.raises(ValueError, match=r"eos_token_id: generation_config\.json has none"):
        generate_ids(model, sources)


def test_lengths_that_count_the_start_are_heeded(model, sources):
    """`max_length` and `min_length` of `generate`, in the search here and where it hands over."""
    never, always = {"sequence_bias": {(EOS,): -50.0}}, {"sequence_bias": {(EOS,): 50.0}}
    for options in ({}, {"repetition_penalty": 1.1}):
        assert {len(ids) for ids in generate_ids(model, sources, max_length=6, **never, **options)} == {5}
        assert {len(ids) for ids in generate_ids(model, sources, min_length=4, **always, **options)} == {3}
    assert {len(ids) for ids in generate_ids(model, sources, max_length=9, max_new_tokens=4, **never)} == {4}


def test_the_models_own_settings_stand_beside_the_searchs(model, sources):
    model.generation_config.suppress_tokens = [3]
    model.generation_config.min_new_tokens = 4
    config = generation_config(model.generation_config, PAD, {"suppress_tokens": [5]})
    assert config.suppress_tokens == [3, 5, PAD] and config.min_new_tokens == 4
    for ids in generate_ids(model, sources, num_beams=2):
        assert 3 not in ids and len(ids) >= 4
    with pytest.raises(ValueError, match="num_return_sequences: is called nbest here"):
        generate_ids(model, sources, num_return_sequences=2)
