"""Attention of given translations, and the alignment that it makes."""

import copy
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from toy import SHIFT, random_ids, random_texts, toy_tokenizer

from admin_nmt import Translator
from admin_nmt.decoding.search.ensemble import Ensemble
from admin_nmt.decoding.search.forced_decoding import attention_to_source, default_layer
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


def test_a_layer_that_is_not_there_is_refused(tiny_model):
    for layer in (2, -3):
        with pytest.raises(
            ValueError, match=rf"alignment layer {layer}: the decoder has 2 layers; give 0 to 1, or -2 "
        ):
            attention_to_source(tiny_model(), [[5, 0]], [[5]], layer)
    other = tiny_model()
    other.config.model_type = "bart"
    with pytest.raises(ValueError, match="alignment: does not work with the model type bart; leave it out"):
        attention_to_source(other, [[5, 0]], [[5]], 0)


@pytest.mark.parametrize(("layers", "expected"), [(1, -1), (2, -2), (6, -2)])
def test_by_default_the_layer_before_the_last(tiny_model, layers, expected):
    assert default_layer(tiny_model(decoder_layers=layers)) == expected


def error_rate(found: set[tuple[int, int]], wanted: set[tuple[int, int]]) -> float:
    """Alignment error rate, where all wanted links are sure (Och and Ney 2003, section 6)."""
    return 1 - 2 * len(found & wanted) / (len(found) + len(wanted))


@pytest.mark.slow
def test_a_model_that_copies_aligns_each_word_with_itself(tiny_model):
    """And not with another, which it would if its attention were given to other sources."""
    tokenizer, updates = toy_tokenizer(), 300
    sizes = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 2, "decoder_ffn_dim": 128, "encoder_ffn_dim": 128}
    model = tiny_model(vocab_size=len(tokenizer), variant="pre_ln", **sizes).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = 3e-3 * min((update + 1) / 50, (updates - update) / 100, 1)
        batch = tokenizer(random_texts(32, seed=update), return_tensors="pt", padding=True)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        optimizer.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
    texts = [text for text in random_texts(60, seed=9999) if len(text.split()) > 3]
    rates: dict[str, list[float]] = {"own": [], "shuffled": []}
    draw = random.Random(SHIFT)
    found = Translator(model, tokenizer, num_beams=1).translations(texts, alignment_layer=default_layer(model))
    copied = [best for (best, *_), text in zip(found, texts, strict=True) if best.text == text]
    assert len(copied) > len(texts) / 2
    for best in copied:
        identity = {(i, i) for i in range(len(best.text.split()))}
        rates["own"].append(error_rate(set(best.alignment()), identity))
        columns = draw.sample(range(len(best.source_tokens)), len(best.source_tokens))
        shuffled = replace(best, attention=best.attention[:, columns])
        rates["shuffled"].append(error_rate(set(shuffled.alignment()), identity))
    assert np.mean(rates["own"]) < 0.1
    assert np.mean(rates["shuffled"]) > 0.5


def test_no_logits_are_computed(tiny_model):
    model, pairs = tiny_model(), random_ids(3)
    model.lm_head.register_forward_hook(lambda *_: pytest.fail("nobody reads them"))
    attention_to_source(model, pairs["input_ids"][:], pairs["labels"][:], -1)


def test_several_tokens_may_end_a_sentence(tiny_model):
    model = tiny_model()
    expected = attention_to_source(model, [[7, 8, 0]], [[9]], -1)
    model.config.eos_token_id = [0, 5]
    assert attention_to_source(model, [[7, 8, 0]], [[9]], -1)[0] == pytest.approx(expected[0])
