"""The float32 weights behind a model that computes in bfloat16, and trainings with them."""

import json
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from toy import StopAfter, random_ids

from admin_nmt import AdminTrainer
from admin_nmt.trainer.optimizers.fused_radam import FusedRAdam
from admin_nmt.trainer.optimizers.master_weights import MasterWeights, norm_in_float32


@pytest.fixture
def model() -> nn.Sequential:
    made = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
    made[2].weight = made[0].weight  # tied
    return made


def update(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.zero_grad()
    model(torch.ones(4, 8, dtype=model[0].weight.dtype)).float().square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", [FusedRAdam, torch.optim.AdamW])
def test_steps_too_small_for_bfloat16_add_up(model, kind):
    """A step of 1e-4 of a weight of 1 is lost in bfloat16, whose next number is 1/256 away."""
    nn.init.ones_(model[1].weight)
    settings = {"decoupled_weight_decay": True} if kind is FusedRAdam else {}
    optimizer = kind(model.parameters(), lr=1e-4, weight_decay=0.0, **settings)
    masters = MasterWeights(model)
    with masters.training(optimizer):
        for _ in range(100):
            update(model, optimizer)
        assert model[1].weight.dtype == model[1].weight.grad.dtype == torch.bfloat16
        assert model[1].weight.min() < 1 - 1 / 256
        for copy, master in zip(masters.copies, masters.masters, strict=True):
            assert copy.equal(master.bfloat16())
    assert not model[1].weight.equal(model[1].weight.bfloat16().float())


def test_the_optimizer_is_that_of_float32_given_the_same_gradients(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    before = [p.detach().clone() for p in model.parameters()]
    masters = MasterWeights(model)
    with masters.training(optimizer):
        update(model, optimizer)
        gradients = [copy.grad.float() for copy in masters.copies]
    plain = [nn.Parameter(p) for p in before]
    for parameter, gradient in zip(plain, gradients, strict=True):
        parameter.grad = gradient
    torch.optim.AdamW(plain, lr=0.01).step()
    assert all(p.equal(q) for p, q in zip(model.parameters(), plain, strict=True))


def test_the_model_gets_its_parameters_back(model):
    before = list(model.parameters())
    masters = MasterWeights(model)
    with pytest.raises(ArithmeticError), masters.training(torch.optim.AdamW(before)):
        raise ArithmeticError
    assert all(p is q for p, q in zip(model.parameters(), before, strict=True))
    assert model[2].weight is model[0].weight


def test_what_is_loaded_in_float32_is_what_the_copies_are_made_of(model):
    optimizer = torch.optim.AdamW(model.parameters())
    masters = MasterWeights(model)
    given = {name: torch.full_like(p, 1 / 3) for name, p in model.state_dict().items()}
    with masters.training(optimizer):
        copies = list(model.parameters())
        with masters.in_float32(), masters.in_float32():
            model.load_state_dict(given)
        assert all(p is q for p, q in zip(model.parameters(), copies, strict=True))
        assert all((p == torch.tensor(1 / 3).bfloat16()).all() for p in model.parameters())
    assert all(p.equal(given[name]) for name, p in model.state_dict().items())


def test_frozen_parameters_are_copied_but_not_changed(model):
    model[1].weight.requires_grad_(False)
    before = model[1].weight.clone()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    with MasterWeights(model).training(optimizer):
        update(model, optimizer)
        assert model[1].weight.dtype == torch.bfloat16
    assert model[1].weight.equal(before)
    assert model[1].weight.grad is None


def test_refuses_other_types(model):
    with pytest.raises(ValueError, match=r"0\.weight is torch\.bfloat16"):
        MasterWeights(model.bfloat16())


def test_the_norm_is_not_rounded():
    gradients = [torch.randn(50, 3).bfloat16(), torch.randn(7).bfloat16()]
    expected = torch.cat([g.double().flatten() for g in gradients]).norm()
    found = norm_in_float32(gradients)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)


@pytest.fixture
def trainer(new_model, arguments) -> Callable[..., AdminTrainer]:
    def build(*callbacks, folder: str = "run", **fields) -> AdminTrainer:
        data = random_ids(60)
        args = arguments(folder, **{"max_tokens": 60, "master_weights": True} | fields)
        given = {"train_dataset": data, "eval_dataset": data.select(range(9)), "callbacks": list(callbacks)}
        return AdminTrainer(new_model(dropout=0.1), args, **given)

    return build


def test_trains_in_bfloat16_and_evaluates_in_float32(trainer):
    run, found = trainer(eval_strategy="steps", eval_steps=3), {True: set(), False: set()}
    run.settle_omega()  # in float32
    for block in run.model.model.encoder.residual_blocks():
        block.register_forward_hook(lambda module, args, output: found[module.training].add(output.dtype))
    run.train()
    assert found == {True: {torch.bfloat16}, False: {torch.float32}}
    assert run.record.precisions == ["bfloat16 with float32 master weights"]
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("optimizer", ["radam", "adam"])
def test_goes_on_bit_for_bit_from_float32_weights(trainer, tmp_path, optimizer):
    fields = {"save_strategy": "steps", "save_steps": 3, "optimizer": optimizer}
    whole = trainer(folder="whole", **fields)
    whole.train()
    trainer(StopAfter(3), folder="part", **fields).train()
    part = trainer(folder="part", **fields)
    part.train(resume_from_checkpoint=True)
    expected = whole.model.state_dict()
    torch.testing.assert_close(part.model.state_dict(), expected, rtol=0, atol=0)
    checkpoint = tmp_path / "whole" / "checkpoint-6"
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        assert tensor.equal(expected[name]) and tensor.dtype == torch.float32
    assert json.loads((checkpoint / "config.json").read_text())["dtype"] == "float32"


def test_ends_with_the_best_weights(trainer):
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": True}
    run = trainer(eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1, max_steps=3, **best)
    run.train()
    saved = load_file(f"{run.state.best_model_checkpoint}/model.safetensors")
    assert run.state.best_global_step < 3
    assert all(run.model.state_dict()[name].equal(tensor) for name, tensor in saved.items())
