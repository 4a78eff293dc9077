"""Products by oneDNN: those of the layer, in its precision, and the layer's own wherever they do not apply."""

import copy
import pickle

import pytest
import torch
from torch import nn
from toy import random_ids

from admin_nmt.decoding.search import decoding_precision, packed_products
from admin_nmt.decoding.search.decoding_precision import in_precision, products_dtype
from admin_nmt.decoding.search.generation import search_ids
from admin_nmt.decoding.search.packed_products import PackedLinear, can_pack_products, with_packed_products

pytestmark = pytest.mark.skipif(not can_pack_products(), reason="this build of PyTorch has no oneDNN")
needs_bfloat16 = pytest.mark.skipif(not can_pack_products(torch.bfloat16), reason="no oneDNN products of bfloat16")
NEAR = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(autouse=True)
def none_is_small(monkeypatch):
    monkeypatch.setattr(packed_products, "SMALL", 0)


@pytest.fixture
def layer() -> nn.Linear:
    return nn.Linear(64, 96)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(5, 7, 64)


@torch.no_grad()
def test_float32_is_exact_to_rounding_in_copies_too(layer, x, monkeypatch):
    """Small products are the layer's own."""
    packed = PackedLinear(layer, torch.float32)
    found = packed(x)
    torch.testing.assert_close(found, layer(x), **NEAR)
    for copied in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed))):
        assert torch.equal(copied(x), found)
    monkeypatch.setattr(packed_products, "SMALL", 2**20)
    assert torch.equal(packed(x), layer(x))


@needs_bfloat16
@torch.no_grad()
def test_bfloat16_rounds_its_factors_and_gives_float32(layer, x):
    found, exact = PackedLinear(layer, torch.bfloat16)(x), layer(x)
    assert found.dtype == torch.float32
    assert not torch.allclose(found, exact, **NEAR)
    torch.testing.assert_close(found, exact, rtol=2e-2, atol=2e-2)


def test_the_layer_computes_what_needs_a_gradient(layer, x):
    PackedLinear(layer, torch.bfloat16 if can_pack_products(torch.bfloat16) else torch.float32)(x).sum().backward()
    found, layer.weight.grad = layer.weight.grad, None
    layer(x).sum().backward()
    assert torch.equal(found, layer.weight.grad)


@needs_bfloat16
def test_the_search_finds_the_same_and_the_model_stays_as_it_was(tiny_model):
    model, sources = tiny_model(vocab_size=24).eval(), random_ids(12, vocabulary=24, longest=9)["input_ids"][:]
    kinds = [type(module) for module in model.modules()]
    expected = search_ids(model, sources, num_beams=3, nbest=2)
    found = search_ids(with_packed_products(model, torch.float32), sources, num_beams=3, nbest=2)
    assert [[one.ids for one in rows] for rows in found] == [[one.ids for one in rows] for rows in expected]
    assert [one.score for rows in found for one in rows] == pytest.approx(
        [one.score for rows in expected for one in rows], abs=1e-5
    )
    packed = with_packed_products(model, torch.bfloat16)
    assert packed.lm_head.dtype == torch.float32
    assert packed.model.decoder.layers[0].fc1.dtype == torch.bfloat16
    assert [type(module) for module in model.modules()] == kinds
    assert all(
        one.data_ptr() == other.data_ptr()
        for one, other in zip(packed.state_dict().values(), model.state_dict().values(), strict=True)
    )


@needs_bfloat16
@torch.no_grad()
def test_a_packed_model_can_be_exported(tiny_model):
    model, inputs = tiny_model(vocab_size=24).eval(), {"input_ids": torch.arange(2, 9)[None]}
    expected = model.get_encoder()(**inputs).last_hidden_state
    encoder = with_packed_products(model, torch.bfloat16).get_encoder()
    found = torch.export.export(encoder, (), inputs).module()(**inputs).last_hidden_state
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("fast", "width", "expected"),
    [(True, 512, torch.bfloat16), (True, 128, torch.float32), (False, 512, torch.float32)],
)
def test_bfloat16_needs_hardware_and_width(monkeypatch, fast, width, expected):
    monkeypatch.setattr(decoding_precision, "cpu_bfloat16_is_fast", lambda: fast)
    assert products_dtype(width) == expected


@needs_bfloat16
@pytest.mark.parametrize(
    ("chosen", "dtype", "expected"),
    [
        (torch.bfloat16, None, "float32 with products of bfloat16"),
        (torch.bfloat16, "float32", "float32"),
        (torch.float32, None, "float32"),
        (torch.float32, torch.bfloat16, "float32 with products of bfloat16"),
    ],
)
def test_what_is_named_wins(tiny_model, monkeypatch, chosen, dtype, expected):
    monkeypatch.setattr(decoding_precision, "products_dtype", lambda width: chosen)
    assert in_precision(tiny_model(), dtype)[1] == expected


def test_without_onednn_a_named_precision_is_that_of_the_weights(tiny_model, monkeypatch):
    monkeypatch.setattr(decoding_precision, "can_pack_products", lambda dtype: False)
    assert in_precision(tiny_model(), None)[1] == "float32"
    model, name = in_precision(tiny_model(), "bfloat16")
    assert (name, model.dtype) == ("bfloat16", torch.bfloat16)
