"""The rivals of ADMIN, pre-LN and DLCL against their released code and the equations of their papers.

`released_rivals.json` holds what the layers of the repositories that it names put out, and by what their initialisation
scales each matrix in 3 encoder and 2 decoder layers; both were run on the weights and inputs of the formulas below.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from toy import small_config

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.model.building import new_layer
from admin_nmt.model.rivals import xavier_gains
from admin_nmt.model.sublayers import NORM_NAMES, Stack

RELEASED = json.loads((Path(__file__).parent / "released_rivals.json").read_text())
WIDTH, FFN, HEADS = 8, 12, 2
ALPHA = 0.25  # of the released ReZero layers, which would do nothing at its initial 0


def small(variant: str, **fields) -> AdminConfig:
    sizes = {"encoder_ffn_dim": FFN, "decoder_ffn_dim": FFN, "d_model": WIDTH, "attn_implementation": "eager"}
    heads = {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    return small_config(variant=variant, **sizes | heads | fields)


def wave(length: int, shift: float = 0.0) -> Tensor:
    """Two sequences of states."""
    angles = torch.arange(2 * length * WIDTH, dtype=torch.float64) * 0.7 + shift
    return angles.cos().view(2, length, WIDTH).float()


@torch.no_grad()
def filled(layer: nn.Module) -> nn.Module:
    """Weights that depend on their name in fairseq and on nothing else."""
    for name, parameter in layer.named_parameters():
        for theirs, ours in NORM_NAMES.items():
            name = name.replace(ours, theirs)
        if name == "common.alpha":
            parameter.fill_(ALPHA)
            continue
        angles = torch.arange(parameter.numel(), dtype=torch.float64) * 1.3 + sum(map(ord, name)) % 17
        parameter.copy_(angles.sin().mul(0.5).view_as(parameter))
    return layer.eval()


@pytest.mark.parametrize("variant", RELEASED)
def test_layers_of_the_released_code(variant):
    config, x = small(variant), wave(5)
    causal = torch.full((5, 5), -math.inf).triu(1)
    encoded = filled(new_layer(config, "encoder", 1))(x)
    decoded = filled(new_layer(config, "decoder", 1))(x, causal, wave(4, shift=1.0))
    torch.testing.assert_close(encoded, torch.tensor(RELEASED[variant]["encoder"]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(decoded, torch.tensor(RELEASED[variant]["decoder"]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fields", [{"variant": "t_fixup"}, {"variant": "b2t", "released_init": True}], ids=str)
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_initialisation_of_the_released_code(fields, stack: Stack):
    """Each matrix is scaled as there, relative to Xavier's gains before: 1, and 1/√2 of q, k and v."""
    scaled = new_layer(small(**fields), stack, 1)
    expected = RELEASED[fields["variant"]]["scales"][stack]
    found = {
        f"{name}.weight": module.gain * (2**0.5 if name.endswith(("q_proj", "k_proj", "v_proj")) else 1)
        for name, module in scaled.named_modules()
        if isinstance(module, nn.Linear)
    }
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("layer", [1, 2, 5])
def test_depth_scaled_initialisation(stack: Stack, layer: int):
    """U(−γ/√l, γ/√l) in the paper; of variance `scale / fan_avg` with scale = 1/√l in the released code."""
    fans = WIDTH + FFN
    gain = xavier_gains(small("ds_init"), stack, layer - 1).out
    assert gain * math.sqrt(6 / fans) == pytest.approx(math.sqrt(6 / fans) / math.sqrt(layer))
    released = xavier_gains(small("ds_init", released_init=True), stack, layer - 1)
    variance = (released.out * math.sqrt(6 / fans)) ** 2 / 3
    assert variance == pytest.approx(layer**-0.5 / (fans / 2))
    assert released.qk == released.v == pytest.approx(released.out / 2**0.5)


def test_embeddings_of_t_fixup_are_scaled_by_the_depth_of_their_stack():
    apart = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "vocab_size": 9000}
    model = AdminForConditionalGeneration(small("t_fixup", **apart))
    tables = (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens, model.lm_head)
    for table, scale in zip(tables, ((9 * 3) ** -0.25, (9 * 2) ** -0.25, 1.0), strict=True):
        assert table.weight[:-1].std().item() == pytest.approx(scale * WIDTH**-0.5, rel=0.02)


def test_a_new_rezero_model_passes_its_embeddings_on(batch):
    model = AdminForConditionalGeneration(small("rezero"))
    encoder = model.model.encoder
    x = encoder.token_embeddings(batch["input_ids"], None)
    states = encoder(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    assert torch.equal(states, x + encoder.embed_positions(x, batch["attention_mask"]))
    model.train()(**batch).loss.backward()
    gradients = {name: parameter.grad.abs().max() for name, parameter in model.named_parameters()}
    assert sum(name.endswith("alpha") for name in gradients) == 3 + 2  # one a layer
    # The encoder learns from the second update on, when the decoder reads it.
    learns = {f"model.decoder.layers.{layer}.common.alpha" for layer in (0, 1)} | {"model.shared.weight"}
    assert {name for name, gradient in gradients.items() if gradient > 0} == learns


def test_layernorm_scaling_of_one_layer_is_pre_ln(tiny_model, batch):
    """And of deeper ones is not: l counts the layers of each stack from 1."""
    for layers, same in ((1, True), (2, False)):
        fields = {"encoder_layers": layers, "decoder_layers": layers}
        scaled, plain = (tiny_model(variant=variant, **fields) for variant in ("ln_scaling", "pre_ln"))
        plain.load_state_dict(scaled.state_dict())
        assert torch.equal(scaled(**batch).logits, plain(**batch).logits) == same
