"""The precision of a translation: by hardware and width, unless somebody names it."""

import pytest
import torch

from admin_nmt.decoding.search import decoding_precision
from admin_nmt.decoding.search.decoding_precision import in_precision, products_dtype
from admin_nmt.decoding.search.packed_products import can_pack_products


@pytest.mark.parametrize(
    ("fast", "width", "expected"),
    [(True, 512, torch.bfloat16), (True, 128, torch.float32), (False, 512, torch.float32)],
)
def test_bfloat16_needs_hardware_and_width(monkeypatch, fast, width, expected):
    monkeypatch.setattr(decoding_precision, "cpu_bfloat16_is_fast", lambda: fast)
    assert products_dtype(width) == expected


@pytest.mark.skipif(not can_pack_products(torch.bfloat16), reason="needs oneDNN's products of bfloat16")
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


def test_an_unknown_name_is_refused(tiny_model):
    with pytest.raises(ValueError, match="int3"):
        in_precision(tiny_model(), "int3")
