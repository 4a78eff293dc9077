"""Several models as one: the mean of their log-probabilities."""

import math

import pytest
import torch
from plain_search import plain_beam_search
from toy import random_ids

from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.search.ensemble import Ensemble
from admin_nmt.decoding.search.generation import generate_ids, search_ids
from admin_nmt.weights.exporting import standard_model

VOCABULARY = 16


@pytest.fixture
def sources() -> list[list[int]]:
    return random_ids(4, vocabulary=VOCABULARY, longest=5)["input_ids"][:]


@pytest.fixture
def models(tiny_model) -> list:
    """Two models of other depths, variants and classes."""
    first = tiny_model(vocab_size=VOCABULARY, encoder_layers=2, decoder_layers=1)
    other = tiny_model(vocab_size=VOCABULARY, variant="pre_ln", encoder_layers=1, decoder_layers=2)
    return [first, standard_model(other)]


@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (4, 0.6)])
def test_two_models_agree_with_a_plain_search(models, sources, beams, penalty):
    options = {"num_beams": beams, "length_penalty": penalty}
    found = search_ids(Ensemble(models), sources, nbest=beams, **options)
    for rows, source in zip(found, sources, strict=True):
        expected = plain_beam_search(models, source, beams, penalty)
        assert [row.ids for row in rows] == [ids for _, ids in expected]
        assert [row.score for row in rows] == pytest.approx([score for score, _ in expected], abs=1e-4)
    best = [rows[0].ids for rows in found]
    assert best == generate_ids(Ensemble(models), sources, batch_tokens=1, **options)


def test_a_model_with_itself_is_the_model(models, sources):
    alone, twice = (
        search_ids(one, sources, nbest=3, num_beams=3) for one in (models[0], Ensemble([models[0], models[0]]))
    )
    assert [[row.ids for row in rows] for rows in twice] == [[row.ids for row in rows] for rows in alone]
    scores = [[row.score for rows in found for row in rows] for found in (alone, twice)]
    assert scores[1] == pytest.approx(scores[0], abs=1e-5)
    draw = Sampling(seed=2)
    drawn = generate_ids(Ensemble([models[0]] * 2), sources, sampling=draw)
    assert drawn == generate_ids(models[0], sources, sampling=draw)


@pytest.mark.parametrize("field", ["vocab_size", "pad_token_id", "eos_token_id", "decoder_start_token_id"])
def test_models_that_share_no_vocabulary_are_refused(tiny_model, field):
    models = [tiny_model(vocab_size=VOCABULARY, max_position_embeddings=positions) for positions in (40, 20, 30)]
    assert Ensemble(models).config.max_position_embeddings == 20
    setattr(models[2].config, field, 3)
    with pytest.raises(ValueError, match=field):
        Ensemble(models)


def test_a_model_whose_scores_are_no_numbers_is_found(models, sources):
    with torch.no_grad():
        models[1].model.decoder.layers[0].fc2.bias[0] = math.nan
    models[1].name_or_path = "runs/b"
    with pytest.raises(ValueError, match="runs/b"):
        generate_ids(Ensemble(models), sources, num_beams=2)
