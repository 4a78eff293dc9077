"""The search on shared rows: token for token what `generate` gives, whatever the model and the settings."""

import pytest
import torch
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.decoding.search import generation
from admin_nmt.decoding.search.generation import generate_ids
from admin_nmt.weights.exporting import standard_model

VOCABULARY = 24
SETTINGS = [
    {"num_beams": 1},
    {"num_beams": 3, "length_penalty": 0.6, "min_new_tokens": 6},
    {"num_beams": 4, "length_penalty": 0.0, "max_new_tokens": 7},
    {"num_beams": 5, "length_penalty": 2.0},
    {"num_beams": 5, "min_new_tokens": 9, "max_new_tokens": 9},
    {"num_beams": 3, "eos_token_id": [0, 5]},
    {"num_beams": 4, "suppress_tokens": [3, VOCABULARY - 1]},
    {"num_beams": 4, "renormalize_logits": True, "suppress_tokens": [3, 4, 5, VOCABULARY - 1], "min_new_tokens": 2},
    {"num_beams": 3, "bad_words_ids": [[n, m] for n in range(2, 20, 2) for m in range(2, 20)] + [[9, 9, 9], [11], [0]]},
]


@pytest.fixture
def sources() -> list[list[int]]:
    return random_ids(16, vocabulary=VOCABULARY, longest=9)["input_ids"][:]


def both_searches(model, sources, monkeypatch, **options) -> tuple[list[list[int]], list[list[int]]]:
    """Translations by the search on shared rows, without any call of `generate`, and those by `generate`."""
    with monkeypatch.context() as patch:
        patch.setattr(model, "generate", None)
        ours = generate_ids(model, sources, batch_tokens=60, **options)
    with monkeypatch.context() as patch:
        patch.setattr(generation, "is_switchable", lambda model: False)
        return ours, generate_ids(model, sources, batch_tokens=60, **options)


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_same_as_generate(tiny_model, sources, monkeypatch, options):
    model = tiny_model(vocab_size=VOCABULARY)
    with torch.no_grad():
        for layer in model.model.decoder.layers:
            layer.encoder_attn.out_proj.weight *= 4  # so that short translations differ between sources, too
    ours, expected = both_searches(model, sources, monkeypatch, **options)
    assert ours == expected
    assert len({tuple(ids) for ids in ours}) > 1


NAMES = "post_ln pre_ln dlcl_pre_ln dlcl_post_ln deepnorm b2t rezero transparent_post_ln transparent_pre_ln"
TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31, "vocab_size": 31}


@pytest.mark.parametrize(
    "fields",
    [*({"variant": name} for name in NAMES.split()), TWO_VOCABULARIES | {"decoder_attention_heads": 2}],
    ids=lambda fields: next(iter(fields.values())),
)
def test_every_architecture(tiny_model, sources, monkeypatch, fields):
    ours, expected = both_searches(tiny_model(**{"vocab_size": VOCABULARY} | fields), sources, monkeypatch, num_beams=4)
    assert ours == expected


@pytest.mark.parametrize("variant", ["admin", "pre_ln"])
def test_standard_models(tiny_model, sources, monkeypatch, variant):
    model = tiny_model(vocab_size=VOCABULARY, variant=variant)
    ours, expected = both_searches(standard_model(model), sources, monkeypatch, num_beams=5, length_penalty=0.8)
    assert ours == expected == generate_ids(model, sources, num_beams=5, length_penalty=0.8)


@pytest.mark.parametrize("options", [{"early_stopping": False}, {"no_repeat_ngram_size": 2}, {"do_sample": True}])
def test_settings_that_only_generate_knows_go_there(tiny_model, sources, monkeypatch, options):
    model, calls, search = tiny_model(vocab_size=VOCABULARY), [], AdminForConditionalGeneration.generate
    monkeypatch.setattr(type(model), "generate", lambda self, **kwargs: calls.append(kwargs) or search(self, **kwargs))
    generate_ids(model, sources, **{"num_beams": 1 if "do_sample" in options else 3} | options)
    assert calls


def state(model) -> list[tuple]:
    """All that a search might change of a model, of each of its modules, and of the process."""
    return [
        (name, module.training, getattr(module, "config", None), module.forward, list(module._forward_hooks))
        for name, module in model.named_modules()
    ] + [
        model.config._attn_implementation,
        model.generation_config.to_dict(),
        torch.get_num_threads(),
        torch.get_rng_state().tolist(),
    ]


@pytest.mark.parametrize("kind", ["admin", "marian"])
def test_the_model_is_as_before_when_a_search_fails(tiny_model, sources, kind):
    """After one that succeeds, see tests/test_nothing_is_patched.py."""
    model = tiny_model(vocab_size=VOCABULARY)
    model = model if kind == "admin" else standard_model(model)
    model.train().model.encoder.eval()  # as where a part of a model is frozen
    before, steps = state(model), iter([1, 2])
    model.model.decoder.layers[0].register_forward_pre_hook(lambda *_: next(steps) and None)
    with pytest.raises(StopIteration):
        generate_ids(model, sources, num_beams=3)
    assert state(model) == before
