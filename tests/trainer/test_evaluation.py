"""Scores of a test set, of which some pairs may be longer than the model's positions."""

import pytest
from toy import text_pairs, toy_tokenizer

from admin_nmt import Translator
from admin_nmt.trainer.evaluation import evaluate_translator, mean_nll


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
