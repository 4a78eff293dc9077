"""Scores of a test set, of which some pairs may be longer than the model's positions."""

import pytest
import torch
from toy import random_ids, text_pairs, toy_tokenizer

from admin_nmt import Translator
from admin_nmt.trainer.evaluation import encoder_variance, evaluate_translator, mean_nll


@pytest.mark.parametrize("side", ["source", "target"])
def test_pairs_beyond_the_positions_are_translated_but_left_out_of_the_likelihood(tiny_model, side):
    tokenizer = toy_tokenizer()
    model = tiny_model(vocab_size=len(tokenizer), max_position_embeddings=48)
    data = text_pairs(tokenizer, 6)
    pairs = data.select_columns(["source", "target"])
    longer = pairs.map(lambda row, index: {side: row[side] * (99 if index == 2 else 1)}, with_indices=True)
    translator = Translator(model, tokenizer, num_beams=1)
    translations, found = evaluate_translator(translator, longer, "de")
    assert (len(translations), found["sentences"], found["nll_sentences"]) == (6, 6, 5)
    assert found["nll"] == pytest.approx(mean_nll(model, data.select([0, 1, 3, 4, 5])), rel=1e-5)
    whole = evaluate_translator(translator, pairs, "de")[1]
    assert whole["nll_sentences"] == 6 and whole["nll"] == pytest.approx(mean_nll(model, data), rel=1e-5)


def test_the_variance_of_the_encoder_is_that_between_tokens(tiny_model):
    """Of a batch as of its sources one by one, and near 0 where all states are alike."""
    data = random_ids(5)
    model = tiny_model().train()
    one_by_one = [
        model.eval().get_encoder()(torch.tensor([row])).last_hidden_state[0].double() for row in data["input_ids"][:]
    ]
    states = torch.cat(one_by_one).detach()
    expected = 1 - states.mean(0).square().sum() * len(states) / states.square().sum()
    model.train()
    assert encoder_variance(model, data) == pytest.approx(float(expected), rel=1e-4)
    assert model.training
    with torch.no_grad():
        model.get_encoder().layers[-1].ffn_residual.layer_norm.weight.mul_(1e-4)
        model.get_encoder().layers[-1].ffn_residual.layer_norm.bias.add_(1)
    assert encoder_variance(model, data) < 1e-6
