"""Flash attention equals eager attention on padded batches, with plain functions in place of its kernels."""

import sys
from itertools import pairwise
from types import ModuleType

import pytest
import torch
from torch import Tensor
from transformers import modeling_flash_attention_utils as utils

PAD = 98
LOADED = ("_loaded_implementation", "_flash_fn", "_flash_varlen_fn", "_flash_with_kvcache_fn", "_pad_fn", "_unpad_fn")


def plain_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """What `flash_attn_varlen_func` computes: every sequence of [tokens, heads, d] for itself, causal from its end."""
    assert (len(q), len(k), len(v)) == (cu_seqlens_q[-1], cu_seqlens_k[-1], cu_seqlens_k[-1])
    assert cu_seqlens_q.diff().max() <= max_seqlen_q and cu_seqlens_k.diff().max() <= max_seqlen_k
    ends = (cu_seqlens.tolist() for cu_seqlens in (cu_seqlens_q, cu_seqlens_k))
    bounds = [list(pairwise(places)) for places in ends]
    outputs = []
    for (q0, q1), (k0, k1) in zip(*bounds, strict=True):
        scores = torch.einsum("qhd,khd->hqk", q[q0:q1], k[k0:k1]) * softmax_scale
        if causal:
            later = torch.ones(q1 - q0, k1 - k0, dtype=torch.bool).triu(k1 - k0 - (q1 - q0) + 1)
            scores = scores.masked_fill(later, -torch.inf)
        outputs.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[k0:k1]))
    return torch.cat(outputs)


def plain_batch(q: Tensor, k: Tensor, v: Tensor, dropout_p=0.0, softmax_scale=None, causal=False) -> Tensor:
    """What `flash_attn_func` computes: the same, of sequences of one length."""
    ends = [torch.arange(len(x) + 1) * x.shape[1] for x in (q, k)]
    flat = (x.flatten(0, 1) for x in (q, k, v))
    options = {"dropout_p": dropout_p, "softmax_scale": softmax_scale, "causal": causal}
    return plain_varlen(*flat, *ends, q.shape[1], k.shape[1], **options).unflatten(0, q.shape[:2])


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch):
    """Lets transformers find a package flash_attn."""
    package, padding = ModuleType("flash_attn"), ModuleType("flash_attn.bert_padding")
    package.flash_attn_func, package.flash_attn_varlen_func = plain_batch, plain_varlen
    package.flash_attn_with_kvcache = None
    padding.pad_input, padding.unpad_input = utils._pad_input, utils._unpad_input
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setitem(sys.modules, "flash_attn.bert_padding", padding)
    monkeypatch.setattr(utils, "is_flash_attn_2_available", lambda: True)
    for name in LOADED:
        if hasattr(utils, name):
            monkeypatch.setattr(utils, name, None)


@pytest.fixture
def both(tiny_model):
    """A model with eager and with flash attention, of the same weights, in float64."""
    eager, flash = (tiny_model(variant="admin", dropout=0.0).double() for _ in range(2))
    flash.load_state_dict(eager.state_dict())
    eager.set_attn_implementation("eager")
    flash.config._attn_implementation = "flash_attention_2"  # `set_attn_implementation` asks for a GPU
    return eager, flash


def padded(batch: int, width: int, side: str = "right") -> tuple[Tensor, Tensor]:
    """Random ids of sentences of 1 to `width` tokens, and their mask."""
    lengths = torch.randint(1, width + 1, (batch, 1))
    lengths[0], lengths[1] = width, 1
    if side == "none":
        lengths.fill_(width)
    mask = torch.arange(width) < lengths
    mask = mask.flip(1) if side == "left" else mask
    return torch.randint(2, PAD, (batch, width)).masked_fill(~mask, PAD), mask.long()


@pytest.mark.parametrize("side", ["right", "left", "none"])
@pytest.mark.parametrize("target", [1, 7, 9])
def test_padded_sources(both, target, side):
    """Also where source and target are equally wide, or the target is the wider: the mask is the source's alone."""
    ids, mask = padded(5, 7, side)
    decoder_ids = torch.randint(2, PAD, (5, target))
    with torch.no_grad():
        eager, flash = (model(ids, mask, decoder_ids).logits for model in both)
    torch.testing.assert_close(flash, eager, atol=1e-12, rtol=1e-12)


def test_gradients(both):
    ids, mask = padded(5, 7)
    labels, target_mask = padded(5, 7)
    labels = labels.masked_fill(target_mask == 0, -100)
    for model in both:
        model.train()(ids, mask, labels=labels).loss.backward()
    eager, flash = ({name: p.grad for name, p in model.named_parameters()} for model in both)
    torch.testing.assert_close(flash, eager, atol=1e-6, rtol=1e-5)
