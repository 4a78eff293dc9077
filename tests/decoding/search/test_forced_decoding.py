"""Attention of given translations, and the alignment that it makes."""

import copy

import numpy as np
import pytest
import torch
from toy import random_ids

from admin_nmt.decoding.search.ensemble import Ensemble
from admin_nmt.decoding.search.forced_decoding import attention_to_source
from admin_nmt.weights.exporting import standard_model


@pytest.mark.parametrize("kind", ["admin", "marian", "pegasus"])
@pytest.mark.parametrize("layer", [0, -1])
def test_is_the_mean_of_the_heads_in_the_models_own_attention(tiny_model, kind, layer):
    model = tiny_model(variant="pre_ln" if kind == "pegasus" else "admin")
    model = model if kind == "admin" else standard_model(model)
    pairs = random_ids(7)
    sources, targets = pairs["input_ids"][:], [ids[:-1] for ids in pairs["labels"][:]]
    before = [module.config for module in model.modules() if hasattr(module, "config")]
    found = attention_to_source(model, sources, targets, layer, max_tokens=30)
    assert before == [module.config for module in model.modules() if hasattr(module, "config")]
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    for weights, source, target in zip(found, sources, targets, strict=True):
        start = torch.tensor([[model.config.decoder_start_token_id, *target[:-1]]])
        with torch.no_grad():
            output = eager(torch.tensor([source]), decoder_input_ids=start, output_attentions=True)
        assert weights == pytest.approx(output.cross_attentions[layer][0].mean(0).numpy(), abs=1e-5)
        assert weights.shape == (len(target), len(source))


def test_of_an_ensemble_it_is_the_mean(tiny_model):
    models, pairs = [tiny_model(), tiny_model(decoder_layers=3)], random_ids(3)
    arguments = (pairs["input_ids"][:], pairs["labels"][:], -1)
    alone = [attention_to_source(model, *arguments) for model in models]
    for weights, first, second in zip(attention_to_source(Ensemble(models), *arguments), *alone, strict=True):
        assert weights == pytest.approx((first + second) / 2, abs=1e-6)
        assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize(
    ("layer", "kind", "named"), [(2, "admin", "layer 2"), (-3, "admin", "layer -3"), (0, "bart", "bart")]
)
def test_a_layer_that_is_not_there_is_refused(tiny_model, layer, kind, named):
    model = tiny_model()
    model.config.model_type = kind
    with pytest.raises(ValueError, match=named):
        attention_to_source(model, [[5, 0]], [[5]], layer)
