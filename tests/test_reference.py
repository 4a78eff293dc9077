"""Equality with numbers that the papers' own code produced."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from admin_nmt.model.positions import fairseq_sinusoids
from admin_nmt.weights.fairseq_weights import convert_fairseq, rename_fairseq
from admin_nmt.weights.profiling import profile_omega

pytestmark = pytest.mark.shared
FIXTURES = [
    "clinic-postln-rand",
    "clinic-preln-rand",
    "clinic-admin-profile",
    "clinic-admin-trained-shared",
    "clinic-admin-trained-unshared",
    "dlcl-preln",
    "dlcl-postln",
]
PAD = 1


def load(folder: Path):
    """The converted model, the tensors and the facts of a fixture."""
    meta = json.loads((folder / "meta.json").read_text())
    model = convert_fairseq(load_file(folder / "state.safetensors"), meta["args"])
    model.config.label_smoothing = 0.1
    return model, load_file(folder / "io.safetensors"), meta


def inputs(tensors: dict, side: str) -> dict:
    source, previous = tensors[f"{side}.src_tokens"], tensors[f"{side}.prev_output_tokens"]
    return {
        "input_ids": source,
        "attention_mask": source.ne(PAD).long(),
        "decoder_input_ids": previous,
        "decoder_attention_mask": previous.ne(PAD).long(),
    }


def labelled(tensors: dict) -> dict:
    """The left-padded batch with its labels."""
    target = tensors["left.target"]
    return inputs(tensors, "left") | {"labels": target.masked_fill(target.eq(PAD), -100)}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", FIXTURES)
def test_states_and_logits(shared, name, side):
    model, tensors, _ = load(shared / "reference" / name)
    batch = inputs(tensors, side)
    with torch.no_grad():
        output = model(**batch)
    source, target = batch["attention_mask"].bool(), tensors[f"{side}.target"].ne(PAD)
    expected = tensors[f"{side}.encoder_out"][source]
    torch.testing.assert_close(output.encoder_last_hidden_state[source], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(output.logits[target], tensors[f"{side}.logits"][target], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", FIXTURES)
def test_losses(shared, name):
    model, tensors, meta = load(shared / "reference" / name)
    with torch.no_grad():
        output = model.train()(**labelled(tensors), num_items_in_batch=1)
    assert output.loss.item() == pytest.approx(meta["loss_left"]["loss_sum"], abs=1e-3)
    assert output.nll.item() == pytest.approx(meta["loss_left"]["nll_sum"], abs=1e-3)


@pytest.mark.parametrize("name", [name for name in FIXTURES if "profile" not in name])
def test_gradients(shared, name):
    folder = shared / "reference" / name
    model, tensors, _ = load(folder)
    # The authors train the first ω too, which here is a buffer.
    first_omega = {name: buffer.requires_grad_() for name, buffer in model.named_buffers() if name.endswith("omega")}
    model.train()(**labelled(tensors), num_items_in_batch=1).loss.backward()
    trained = dict(model.named_parameters(remove_duplicate=False)) | first_omega
    ours = {name: tensor.grad for name, tensor in trained.items()}
    expected = rename_fairseq(load_file(folder / "grads.safetensors"))
    assert len(expected) > 50
    for key, gradient in expected.items():
        if gradient.norm() < 1e-4:  # the bias of a key projection has no gradient but rounding
            assert ours[key].norm() < 1e-4, key
        else:
            assert (ours[key] - gradient).norm() / gradient.norm() < 1e-4, key


def test_reference_profile(shared):
    """ω that the authors' code wrote, encoder then decoder."""
    folder = shared / "reference" / "clinic-admin-profile"
    meta = json.loads((folder / "meta.json").read_text())
    before = convert_fairseq(load_file(folder / "state_before_profiling.safetensors"), meta["args"])
    tensors = load_file(folder / "io.safetensors")
    omega = profile_omega(before, labelled(tensors), mode="reference")
    written = [float(line.split()[1]) for line in (folder / "profile.ratio.init").read_text().splitlines()]
    assert omega["encoder"] + omega["decoder"] == pytest.approx(written, abs=1e-5)


@pytest.mark.parametrize("d", [32, 64])
def test_fairseq_sinusoids(shared, d):
    table = load_file(shared / "reference" / "misc" / "misc.safetensors")[f"sinusoidal.d{d}"]
    torch.testing.assert_close(fairseq_sinusoids(len(table) - 2, d), table[2:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("batch", ["a", "b"])
def test_real_checkpoint(shared, batch):
    """Logits of a model that the authors' code trained for 1,500 updates."""
    folder = shared / "reference" / "clinic-ckpt-admin"
    meta = json.loads((folder / "meta.json").read_text())
    model = convert_fairseq(load_file(folder / "state.safetensors"), meta["args"])
    tensors = load_file(folder / "io.safetensors")
    with torch.no_grad():
        output = model(**inputs(tensors, batch))
    target = tensors[f"{batch}.target"].ne(PAD)
    torch.testing.assert_close(output.logits[target], tensors[f"{batch}.logits"][target], atol=1e-4, rtol=0)
