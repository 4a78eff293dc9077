"""Products by oneDNN: those of the layer, in its precision, and the layer's own wherever they do not apply."""

import copy
import pickle

import pytest
import torch
from torch import nn
from toy import random_ids

from admin_nmt.decoding.search import packed_products
from admin_nmt.decoding.search.generation import search_ids
from admin_nmt.decoding.search.packed_products import PackedProduct, can_pack_products, pack_products

pytestmark = pytest.mark.skipif(not can_pack_products(), reason="this build of PyTorch has no oneDNN")


@pytest.fixture
def layer() -> nn.Linear:
    torch.manual_seed(0)
    layer = nn.Linear(64, 96)
    layer.forward = PackedProduct(layer, torch.float32)
    layer.forward.smallest = 0
    return layer


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(5, 7, 64)


def plain(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.linear(x, layer.weight, layer.bias)


@torch.no_grad()
def test_float32_is_exact_to_rounding(layer, x):
    torch.testing.assert_close(layer(x), plain(layer, x), rtol=1e-5, atol=1e-5)
    assert layer.forward.packed is not None


@torch.no_grad()
def test_bfloat16_rounds_its_factors_and_gives_float32(layer, x):
    if not can_pack_products(torch.bfloat16):
        pytest.skip("oneDNN has no products of bfloat16 here")
    layer.forward = PackedProduct(layer, torch.bfloat16)
    found, exact = layer(x), plain(layer, x)
    assert found.dtype == torch.float32
    assert not torch.allclose(found, exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, exact, rtol=2e-2, atol=2e-2)


def test_the_layer_computes_what_needs_a_gradient(layer, x):
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    assert layer.forward.packed is None


@torch.no_grad()
def test_small_products_in_float32_are_the_layers_own(layer, x):
    layer.forward = PackedProduct(layer, torch.float32)
    assert torch.equal(layer(x), plain(layer, x))
    assert layer.forward.packed is None


@torch.no_grad()
def test_a_changed_weight_is_laid_out_anew(layer, x):
    layer(x)
    layer.weight.mul_(2)
    torch.testing.assert_close(layer(x), plain(layer, x), rtol=1e-5, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("again", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_a_copy_has_its_own_weights(layer, x, again):
    layer(x)
    other = again(layer)
    other.forward.smallest = 0
    other.weight.zero_()
    other.bias.zero_()
    assert not other(x).any()
    assert layer(x).any()


@torch.no_grad()
def test_another_dtype_is_the_layers_own(layer, x):
    assert layer.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16


def test_the_search_finds_the_same_and_the_output_layer_stays_float32(tiny_model, monkeypatch):
    monkeypatch.setattr(packed_products, "SMALL", 0)
    model, sources = tiny_model(vocab_size=24).eval(), random_ids(12, vocabulary=24, longest=9)["input_ids"][:]
    expected = search_ids(model, sources, num_beams=3, nbest=2)
    names = set(model.state_dict())
    pack_products(model, torch.float32)
    found = search_ids(model, sources, num_beams=3, nbest=2)
    assert [[one.ids for one in rows] for rows in found] == [[one.ids for one in rows] for rows in expected]
    assert [one.score for rows in found for one in rows] == pytest.approx(
        [one.score for rows in expected for one in rows], abs=1e-5
    )
    pack_products(model, torch.bfloat16)
    assert model.lm_head.forward.dtype == torch.float32
    assert model.model.decoder.layers[0].fc1.forward.dtype == torch.bfloat16
    assert set(model.state_dict()) == names


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_weights_that_changed_unseen_are_laid_out_anew(tiny_model, monkeypatch, dtype):
    """PEFT merges through `weight.data`, which PyTorch does not count as a change."""
    if not can_pack_products(dtype):
        pytest.skip("oneDNN has no products of bfloat16 here")
    monkeypatch.setattr(packed_products, "SMALL", 0)
    model, inputs = tiny_model(vocab_size=24).eval(), torch.arange(2, 9)[None]
    changed = copy.deepcopy(model)
    for one in (model, changed):
        pack_products(one, dtype)
    decoder_ids = torch.full_like(inputs, 23)
    before = model(inputs, decoder_input_ids=decoder_ids).logits
    for layer in (model.model.decoder.layers[0].fc1, changed.model.decoder.layers[0].fc1):
        layer.weight.data *= 0.5
    after = model(inputs, decoder_input_ids=decoder_ids).logits
    assert not torch.allclose(before, after, atol=1e-3)
    assert torch.equal(after, changed(inputs, decoder_input_ids=decoder_ids).logits)  # which was packed, but never run


@torch.no_grad()
def test_a_packed_model_can_be_exported(tiny_model):
    model, inputs = tiny_model(vocab_size=24).eval(), {"input_ids": torch.arange(2, 9)[None]}
    encoder = model.get_encoder()
    expected = encoder(**inputs).last_hidden_state
    pack_products(model, torch.bfloat16)
    found = torch.export.export(encoder, (), inputs).module()(**inputs).last_hidden_state
    torch.testing.assert_close(found, expected)


@torch.no_grad()
def test_a_weight_that_is_replaced_is_laid_out_anew(layer, x):
    layer(x)
    layer.load_state_dict({name: 2 * value for name, value in layer.state_dict().items()}, assign=True)
    torch.testing.assert_close(layer(x), plain(layer, x), rtol=1e-5, atol=1e-5)
    layer.weight.data = -layer.weight.data
    torch.testing.assert_close(layer(x), plain(layer, x), rtol=1e-5, atol=1e-5)
