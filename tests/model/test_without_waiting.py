"""A pass over the model asks a GPU for no value: on the meta device, which has none, each such question is an error."""

from contextlib import nullcontext

import pytest
import torch
from transformers.masking_utils import create_bidirectional_mask

from admin_nmt.model.modeling_admin import padding_mask


@pytest.fixture
def no_autocast(monkeypatch):
    """The meta device has none, and asking for it is an error."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


@pytest.mark.parametrize("variant", ["admin", "pre_ln", "dlcl_post_ln"])
def test_a_pass_asks_for_no_value(no_autocast, tiny_model, variant):
    model = tiny_model(variant=variant, dropout=0.1, label_smoothing=0.1).train().to("meta")
    ids = torch.ones(3, 5, dtype=torch.long, device="meta")
    labels = torch.ones(3, 7, dtype=torch.long, device="meta")
    output = model(ids, torch.ones_like(ids), labels=labels, num_items_in_batch=labels.ne(-100).sum())
    output.loss.backward()
    assert model.lm_head.weight.grad.is_meta


def test_the_mask_of_a_gpu_masks_the_same(tiny_model):
    model = tiny_model()
    states, mask = torch.randn(2, 4, 16), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    unasked = padding_mask(model.config, states.to("meta"), mask.to("meta"))
    assert unasked.shape == (2, 1, 1, 4) and unasked.dtype == torch.bool
    attention = model.model.encoder.layers[0].self_attn
    expected = attention(states, attention_mask=create_bidirectional_mask(model.config, states, mask))[0]
    found = attention(states, attention_mask=mask[:, None, None].bool())[0]
    torch.testing.assert_close(found, expected)
