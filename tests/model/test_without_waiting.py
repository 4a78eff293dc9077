"""A pass over the model asks a GPU for no value: on the meta device, which has none, each such question is an error."""

from contextlib import nullcontext

import pytest
import torch
from transformers.masking_utils import create_bidirectional_mask

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.model import loss as loss_module
from admin_nmt.model.loss import chunked_label_smoothed_nll, masked_rows
from admin_nmt.model.modeling_admin import padding_mask


def toy_model(**settings) -> AdminForConditionalGeneration:
    sizes = {"encoder_layers": 2, "decoder_layers": 1, "d_model": 8, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    special = {"pad_token_id": 1, "eos_token_id": 0, "decoder_start_token_id": 0, "max_position_embeddings": 16}
    config = AdminConfig(vocab_size=30, **sizes | heads | special | settings)
    return AdminForConditionalGeneration._from_config(config, attn_implementation="sdpa").train()


@pytest.fixture
def no_autocast(monkeypatch):
    """The meta device has none, and asking for it is an error."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


@pytest.mark.parametrize("variant", ["admin", "pre_ln", "dlcl_post_ln"])
def test_a_pass_asks_for_no_value(no_autocast, variant):
    model = toy_model(variant=variant, dropout=0.1, label_smoothing=0.1).to("meta")
    ids = torch.ones(3, 5, dtype=torch.long, device="meta")
    labels = torch.ones(3, 7, dtype=torch.long, device="meta")
    output = model(ids, torch.ones_like(ids), labels=labels, num_items_in_batch=labels.ne(-100).sum())
    output.loss.backward()
    assert model.lm_head.weight.grad.is_meta


@pytest.mark.parametrize(("epsilon", "excluded"), [(0.0, None), (0.1, 7)])
@pytest.mark.parametrize("chunk", [1, 1 << 25])
def test_the_loss_of_masked_rows_is_that_of_the_kept_ones(monkeypatch, epsilon, excluded, chunk):
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", chunk)
    hidden, weight = (torch.randn(*shape).requires_grad_() for shape in ((4, 9, 6), (20, 6)))
    targets = torch.randint(8, 20, (4, 9)).masked_fill(torch.rand(4, 9) < 0.4, -100)

    def results() -> list[torch.Tensor]:
        loss, nll = chunked_label_smoothed_nll(hidden, weight, targets, epsilon, excluded)
        return [loss.detach(), nll, *torch.autograd.grad(loss, (hidden, weight))]

    kept = results()
    monkeypatch.setattr(loss_module, "kept_rows", masked_rows)
    for masked, expected in zip(results(), kept, strict=True):
        torch.testing.assert_close(masked, expected, rtol=1e-5, atol=1e-6)


def test_the_mask_of_a_gpu_masks_the_same():
    model = toy_model().eval()
    states, mask = torch.randn(2, 4, 8), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    unasked = padding_mask(model.config, states.to("meta"), mask.to("meta"))
    assert unasked.shape == (2, 1, 1, 4) and unasked.dtype == torch.bool
    attention = model.model.encoder.layers[0].self_attn
    expected = attention(states, attention_mask=create_bidirectional_mask(model.config, states, mask))[0]
    found = attention(states, attention_mask=mask[:, None, None].bool())[0]
    torch.testing.assert_close(found, expected)
