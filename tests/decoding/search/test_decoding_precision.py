"""The precision of a translation: by hardware and width, unless somebody names it."""

import pytest
import torch

from admin_nmt.decoding.search import decoding_precision
from admin_nmt.decoding.search.decoding_precision import products_dtype, set_precision
from admin_nmt.decoding.search.packed_products import can_pack_products

needs_onednn = pytest.mark.skipif(not can_pack_products(torch.bfloat16), reason="needs oneDNN's products of bfloat16")


@pytest.fixture(autouse=True)
def allocator(monkeypatch):
    monkeypatch.setattr(decoding_precision, "keep_freed_memory", lambda: True)  # it would last for all tests


@pytest.mark.parametrize(
    ("fast", "width", "expected"),
    [(True, 512, torch.bfloat16), (True, 128, torch.float32), (False, 512, torch.float32)],
)
def test_bfloat16_needs_hardware_and_width(monkeypatch, fast, width, expected):
    monkeypatch.setattr(decoding_precision, "cpu_bfloat16_is_fast", lambda: fast)
    assert products_dtype(width) == expected


@needs_onednn
def test_what_is_named_wins(tiny_model, monkeypatch):
    monkeypatch.setattr(decoding_precision, "products_dtype", lambda width: torch.bfloat16)
    assert set_precision([tiny_model()], None) == "float32 with products of bfloat16"
    assert set_precision([tiny_model()], "float32") == "float32"
    monkeypatch.setattr(decoding_precision, "products_dtype", lambda width: torch.float32)
    assert set_precision([tiny_model()], None) == "float32"
    assert set_precision([tiny_model()], torch.bfloat16) == "float32 with products of bfloat16"


def test_without_onednn_a_named_precision_is_that_of_the_weights(tiny_model, monkeypatch):
    monkeypatch.setattr(decoding_precision, "can_pack_products", lambda dtype: False)
    model = tiny_model()
    assert set_precision([model], None) == "float32"
    assert set_precision([model], "bfloat16") == "bfloat16" == str(model.dtype).removeprefix("torch.")


def test_an_unknown_name_is_refused(tiny_model):
    with pytest.raises(ValueError, match="dtype: 'int3' is not one of float32"):
        set_precision([tiny_model()], "int3")
