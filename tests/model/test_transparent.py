"""Transparent attention (Bapna et al. 2018): what each decoder layer attends to, and its special cases."""

import pytest
import torch
from toy import hooked

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.model.rivals import TransparentAttention


@pytest.fixture(params=["pre_ln", "post_ln"])
def layer(request):
    return request.param


@pytest.fixture
def models(tiny_model, layer):
    """A model with transparent attention whose weights are random, and the same one without it."""
    plain, transparent = tiny_model(variant=layer), tiny_model(variant=f"transparent_{layer}")
    missing, unexpected = transparent.load_state_dict(plain.state_dict(), strict=False)
    assert (missing, unexpected) == (["model.encoder.history.weight"], [])
    transparent.model.encoder.history.weight.data.normal_(0, 2)
    return plain, transparent


def test_equation(models, batch):
    """z_j = Σ_i s_ij h_i, s_j = softmax(w_j): a plain sum over the states of the model without it."""
    plain, transparent = models
    weight, encoder = transparent.model.encoder.history.weight, plain.model.encoder
    states, _ = hooked(lambda: plain(**batch), writers=[encoder.embed_dropout, *encoder.layers], readers=[])
    readers = [layer.encoder_attn for layer in transparent.model.decoder.layers]
    _, found = hooked(lambda: transparent(**batch), writers=[], readers=readers, argument=1)
    assert len(states) == 4 and len(found) == 2
    for j, z in enumerate(found):
        exponentials = [weight[j, i].exp() for i in range(4)]
        expected = sum(e / sum(exponentials) * h for e, h in zip(exponentials, states, strict=True))
        torch.testing.assert_close(z, encoder.layer_norm(expected))


def test_one_row_for_all_decoder_layers_is_the_last_row_of_dlcl(tiny_model, models, batch, layer):
    """Wang et al. 2019, figure 2."""
    _, transparent = models
    dlcl = tiny_model(variant=f"dlcl_{layer}", dlcl_weights="identity", dlcl_normalize_history=False)
    weight = torch.tensor([0.3, -1.0, 2.0, 0.5])
    transparent.model.encoder.history.weight.data = weight.expand(2, 4).clone()
    state = transparent.state_dict() | {"model.encoder.history.weight": torch.eye(4)}
    state["model.encoder.history.weight"][-1] = weight.softmax(0)
    dlcl.load_state_dict(state | {"model.decoder.history.weight": torch.eye(3)})
    torch.testing.assert_close(transparent(**batch).logits, dlcl(**batch).logits)


def test_starts_uniform_and_every_weight_is_trained(tiny_config, layer, batch):
    model = AdminForConditionalGeneration(tiny_config(variant=f"transparent_{layer}"))
    weight = model.model.encoder.history.weight
    torch.testing.assert_close(weight.softmax(1), torch.full((2, 4), 1 / 4))
    model.train()(**batch).loss.backward()
    assert (weight.grad != 0).all()


def test_dropout_falls_on_the_weights_before_the_softmax(tiny_config):
    """As in Lingvo's WeightedSumLayer: a weight that is dropped counts as 0 among the others divided by 1 − p."""
    sums = TransparentAttention(tiny_config(dropout=0.5, encoder_layers=7)).train()
    states = torch.eye(8)[:, None, None]  # whose sum is the vector of weights
    found = sums.sums(sums.weight, states)[0, 0]
    kept = found > 1 / 8
    assert kept.any() and not kept.all()
    torch.testing.assert_close(found, (kept * (2 / 8)).softmax(1))
    torch.testing.assert_close(sums.eval().sums(sums.weight, states)[0, 0], torch.full((2, 8), 1 / 8))
