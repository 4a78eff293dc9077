"""The search on shared rows: token for token what `generate` gives, whatever the model and the settings."""

import pytest
import torch
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.decoding import generation
from admin_nmt.decoding.beam_search import SHARED_ROWS, attention_implementation
from admin_nmt.decoding.generation import generate_ids
from admin_nmt.exporting import standard_model

VOCABULARY = 24
SETTINGS = [
    {"num_beams": 1},
    {"num_beams": 2, "length_penalty": 0.6},
    {"num_beams": 3, "min_new_tokens": 6},
    {"num_beams": 4, "length_penalty": 0.0, "max_new_tokens": 7},
    {"num_beams": 5, "length_penalty": 2.0},
    {"num_beams": 5, "min_new_tokens": 9, "max_new_tokens": 9},
    {"num_beams": 3, "eos_token_id": [0, 5]},
    {"num_beams": 4, "suppress_tokens": [3, VOCABULARY - 1]},
    {"num_beams": 2, "bad_words_ids": [[7], [8]]},
]


@pytest.fixture
def sources() -> list[list[int]]:
    return random_ids(16, vocabulary=VOCABULARY, longest=9)["input_ids"][:]


def both_searches(model, sources, monkeypatch, **options) -> tuple[list[list[int]], list[list[int]]]:
    """What the search on shared rows gives without any call of `generate`, and what `generate` gives."""
    with monkeypatch.context() as patch:
        patch.setattr(model, "generate", None)
        ours = generate_ids(model, sources, max_tokens=60, **options)
    with monkeypatch.context() as patch:
        patch.setattr(generation, "SHARED_ROW_MODELS", set())
        return ours, generate_ids(model, sources, max_tokens=60, **options)


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_same_as_generate(tiny_model, sources, monkeypatch, options):
    model = tiny_model(vocab_size=VOCABULARY)
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            layer.encoder_attn.out_proj.weight *= 4  # so that short translations differ between sources, too
    ours, expected = both_searches(model, sources, monkeypatch, **options)
    assert ours == expected
    assert len({tuple(ids) for ids in ours}) > 1


@pytest.mark.parametrize("variant", ["post_ln", "pre_ln", "dlcl_pre_ln", "dlcl_post_ln", "deepnorm"])
def test_every_variant(tiny_model, sources, monkeypatch, variant):
    model = tiny_model(vocab_size=VOCABULARY, variant=variant)
    ours, expected = both_searches(model, sources, monkeypatch, num_beams=4)
    assert ours == expected


@pytest.mark.parametrize("variant", ["admin", "pre_ln"])
def test_stock_models(tiny_model, sources, monkeypatch, variant):
    stock = standard_model(tiny_model(vocab_size=VOCABULARY, variant=variant))
    ours, expected = both_searches(stock, sources, monkeypatch, num_beams=5, length_penalty=0.8)
    assert ours == expected
    assert ours == generate_ids(tiny_model_of(stock, tiny_model, variant), sources, num_beams=5, length_penalty=0.8)


def tiny_model_of(stock, tiny_model, variant: str) -> AdminForConditionalGeneration:
    """Our model of the same weights: `tiny_model` draws the same ones again from the same seed."""
    torch.manual_seed(0)
    return tiny_model(vocab_size=VOCABULARY, variant=variant)


def test_two_vocabularies_and_a_decoder_of_another_width_of_heads(tiny_model, sources, monkeypatch):
    fields = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31, "decoder_attention_heads": 2}
    model = tiny_model(vocab_size=31, **fields)
    ours, expected = both_searches(model, sources, monkeypatch, num_beams=3)
    assert ours == expected


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3, "early_stopping": False},
        {"num_beams": 3, "no_repeat_ngram_size": 2},
        {"do_sample": True, "temperature": 2.0},
        {"num_beams": 3, "bad_words_ids": [[7, 8]]},
    ],
    ids=str,
)
def test_settings_that_only_generate_knows_go_there(tiny_model, sources, monkeypatch, options):
    model, calls, search = tiny_model(vocab_size=VOCABULARY), [], AdminForConditionalGeneration.generate
    monkeypatch.setattr(type(model), "generate", lambda self, **kwargs: calls.append(kwargs) or search(self, **kwargs))
    generate_ids(model, sources, **options)
    assert calls


def test_a_minimum_above_the_limit_still_ends(tiny_model, sources):
    outputs = generate_ids(tiny_model(vocab_size=VOCABULARY), sources, num_beams=2, min_new_tokens=9, max_new_tokens=4)
    assert [len(ids) for ids in outputs] == [4] * len(sources)


def test_fewer_tokens_than_hypotheses(tiny_model, sources):
    allowed = {21, 22}
    banned = [token for token in range(1, VOCABULARY) if token not in allowed]
    outputs = generate_ids(tiny_model(vocab_size=VOCABULARY), sources, num_beams=5, suppress_tokens=banned)
    assert all(ids and set(ids) <= allowed for ids in outputs)


def test_the_models_attention_is_as_before(tiny_model, sources):
    stock = standard_model(tiny_model(vocab_size=VOCABULARY))
    configs = [stock.config, stock.get_encoder().config, stock.get_decoder().config]
    before = [config._attn_implementation for config in configs]
    with pytest.raises(RuntimeError), attention_implementation(stock, SHARED_ROWS):
        assert {config._attn_implementation for config in configs} == {SHARED_ROWS}
        raise RuntimeError
    assert [config._attn_implementation for config in configs] == before
