"""Gradients by sublayer against plain autograd and against the equations; the command's part `gradients`."""

import json
import math

import pytest
import torch
from toy import SHIFT, invoke

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.experiments.depth import gradients
from admin_nmt.experiments.depth.gradients import gradient_norms, skip_path
from admin_nmt.model.configuration_admin import VARIANTS

STACKS = ("encoder", "decoder")


def norm(tensor: torch.Tensor) -> float:
    return tensor.double().square().sum().sqrt().item()


@pytest.mark.parametrize("variant", VARIANTS)
def test_norms_are_those_of_plain_autograd(tiny_model, batch, variant):
    """Layer inputs by retain_grad; the matrices' by what backward leaves in them."""
    model = tiny_model(variant=variant)
    measured = gradient_norms(model, batch)
    inputs = {name: [] for name in STACKS}
    for name in STACKS:
        stack = getattr(model.model, name)
        for module in (*stack.layers, stack.layer_norm):

            def keep(module, args, name=name):
                args[0].retain_grad()
                inputs[name].append(args[0])

            module.register_forward_pre_hook(keep)
    model(**batch).loss.backward()
    for name in STACKS:
        stack, step = getattr(model.model, name), {"encoder": 2, "decoder": 3}[name]
        torch.testing.assert_close(measured[name]["states"][::step], [norm(x.grad) for x in inputs[name]])
        by_layer = [
            math.hypot(*(norm(p.grad) for key, p in layer.named_parameters() if key.endswith(("proj.weight", ".weight"))
                         and p.dim() == 2))
            for layer in stack.layers
        ]  # fmt: skip
        matrices = measured[name]["matrices"]
        sums = [math.hypot(*matrices[start : start + step]) for start in range(0, len(matrices), step)]
        torch.testing.assert_close(sums, by_layer)
        ffn = stack.layers[1]
        torch.testing.assert_close(
            matrices[2 * step - 1], math.hypot(norm(ffn.fc1.weight.grad), norm(ffn.fc2.weight.grad))
        )


def constant_branches(model: AdminForConditionalGeneration) -> None:
    """Branches that do not depend on x: the output is a random bias."""
    with torch.no_grad():
        for stack in (model.model.encoder, model.model.decoder):
            for sublayer in stack.sublayers():
                sublayer.output.weight.zero_()
                sublayer.output.bias.normal_()


@pytest.mark.parametrize("variant", ["post_ln", "admin", "deepnorm"])
def test_equation_5_without_gradients_through_the_branches(tiny_config, batch, variant):
    """Each LayerNorm divides by σ(y_i) and projects on the features without the mean and without x_i itself."""
    model = AdminForConditionalGeneration(tiny_config(variant=variant, d_model=64, decoder_layers=6)).eval()
    constant_branches(model)
    states, predicted = gradient_norms(model, batch)["decoder"]["states"], skip_path(model, batch)["decoder"]
    assert predicted == pytest.approx(predicted_by_hand(model, batch), rel=1e-5)
    assert 0.5 * predicted < states[0] / states[-1] < 1.1 * predicted
    assert predicted < 0.01 or variant != "post_ln"


def predicted_by_hand(model: AdminForConditionalGeneration, batch: dict) -> float:
    """Π ω / σ of a decoder whose branches are its biases, token by token."""
    decoder, total = model.model.decoder, 0.0
    ids = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    embeddings = decoder.token_embeddings(ids, None)
    x = (embeddings + decoder.embed_positions(embeddings, None))[batch["labels"] != -100]
    for sublayer in decoder.sublayers():
        omega = getattr(sublayer.block, "omega", torch.ones(1)).mean()
        y = omega * x + sublayer.output.bias
        total += (omega.log() - y.std(1, correction=0).log().mean()).item()
        x = sublayer.block.layer_norm(y)
    return math.exp(total)


def test_equation_6_without_gradients_through_the_branches(tiny_config, batch):
    """Pre-LN: the gradient of the stack's output reaches every sublayer as it is."""
    model = AdminForConditionalGeneration(tiny_config(variant="pre_ln")).eval()
    constant_branches(model)
    for stack in ("decoder", "encoder"):
        states = gradient_norms(model, batch)[stack]["states"]
        torch.testing.assert_close(states, [states[-1]] * len(states))
    assert skip_path(model, batch) == {"encoder": 1.0, "decoder": 1.0}


def test_measuring_leaves_nothing_behind(tiny_model, batch):
    model = tiny_model(variant="pre_ln")
    gradient_norms(model, batch)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_the_command_measures_before_and_after_training(monkeypatch, tmp_path):
    monkeypatch.setattr(gradients, "PAIRS", 1000)
    sizes = "--depth 2 --shown-depth 2 --decoder-layers 1 --d-model 16"
    options = f"--output {tmp_path} --variant admin:n {sizes} --seed {1 + SHIFT} --updates 2"
    result = invoke(*f"analyse depth --part gradients {options}".split())
    files = {"gradients.json", "gradients-states.png", "gradients-matrices.png", "table.md"}
    assert {file.name for file in tmp_path.iterdir()} == files
    assert (tmp_path / "table.md").read_text() == result.stdout
    before, after = json.loads((tmp_path / "gradients.json").read_text())["rows"]
    assert (before["updates"], after["updates"]) == (0, 2) and after["nll"] < before["nll"]
    assert len(before["encoder"]["states"]) == 5 and len(before["decoder"]["matrices"]) == 3
    ratio = before["encoder"]["states"][0] / before["encoder"]["states"][-1]
    assert f"| admin:n | at initialisation | {ratio:.2g} (" in result.stdout
