"""Optimisers and schedule of a run equal what fairseq computed, apart from differences that are meant."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import get_scheduler

from admin_nmt.trainer.arguments import AdminTrainingArguments, optimizer_settings


@pytest.fixture(scope="module")
def misc(shared) -> tuple[dict, dict]:
    """The settings and the tensors of the reference."""
    folder = shared / "reference" / "misc"
    return json.loads((folder / "meta.json").read_text()), load_file(folder / "misc.safetensors")


def new_optimizer(args: AdminTrainingArguments, start: torch.Tensor, weight_decay: float) -> torch.optim.Optimizer:
    """The optimiser of a run, on one parameter that starts at `start`."""
    optimizer, settings = optimizer_settings(args)
    return optimizer([{"params": [start.clone().requires_grad_()], "weight_decay": weight_decay}], **settings)


def arguments(tmp_path, **fields) -> AdminTrainingArguments:
    return AdminTrainingArguments(str(tmp_path), use_cpu=True, **fields)


def trajectory(misc, name: str, optimizer_name: str, tmp_path, held: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Ours and fairseq's parameter after each of 40 updates; the first `held` of ours do no more than decay it."""
    meta, tensors = misc
    case = meta[name]
    betas = {"adam_beta1": case["betas"][0], "adam_beta2": case["betas"][1], "adam_epsilon": case["eps"]}
    args = arguments(tmp_path, optimizer=optimizer_name, learning_rate=case["lr"], **betas)
    optimizer = new_optimizer(args, tensors["optim.p0"], case["weight_decay"])
    (group,) = optimizer.param_groups
    (parameter,) = group["params"]
    ours = []
    for update, gradient in enumerate(tensors["optim.grads"]):
        group["lr"] = 0.0 if update < held else case["lr"]
        parameter.grad = gradient.clone()
        optimizer.step()
        if update < held:
            parameter.data.mul_(1 - case["lr"] * case["weight_decay"])
        ours.append(parameter.detach().clone())
    return torch.stack(ours), tensors[f"optim.{name}.traj"]


@pytest.mark.parametrize(("name", "direction"), [("adam", [1.0, -1.0]), ("radam", [3.0, -0.5])])
def test_first_update_by_hand(tmp_path, name, direction):
    """p·(1 − lr·decay) − lr·d: d is the gradient's sign with Adam, the gradient itself while RAdam does not adapt."""
    start, gradient = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -0.5])
    optimizer = new_optimizer(arguments(tmp_path, optimizer=name, learning_rate=0.1), start, weight_decay=0.2)
    parameter = optimizer.param_groups[0]["params"][0]
    parameter.grad = gradient
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), start * (1 - 0.1 * 0.2) - 0.1 * torch.tensor(direction))


@pytest.mark.shared
def test_adam(misc, tmp_path):
    """fairseq's Adam decouples weight decay from the gradient, which torch calls AdamW.

    It adds ε to √v before the correction of v's bias, torch after it: 3e-6 where a gradient is near 0.
    """
    ours, theirs = trajectory(misc, "adam_b98", "adam", tmp_path)
    torch.testing.assert_close(ours, theirs, atol=5e-6, rtol=0)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["radam_b98", "radam_b999"])
def test_radam(misc, tmp_path, name):
    """While N_sma < 5, fairseq only decays the weights and torch takes a step of momentum; then they are the same."""
    skipped = sum(n < 5 for n in misc[0][name]["N_sma"])
    assert skipped == 5
    ours, theirs = trajectory(misc, name, "radam", tmp_path, held=skipped)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["radam_b98", "radam_b999"])
def test_first_updates_of_radam_differ(misc, tmp_path, name):
    """We keep torch's momentum steps: during warmup the rate is so small that the five of them do not matter."""
    ours, theirs = trajectory(misc, name, "radam", tmp_path)
    torch.testing.assert_close(theirs[4], misc[1]["optim.p0"], atol=0, rtol=1e-3)
    assert (ours[4] - theirs[4]).abs().max() > 0.01


@pytest.mark.shared
@pytest.mark.parametrize(("name", "tolerance"), [("neg", 0), ("wmt", 1e-7), ("small", 1e-7)])
def test_inverse_square_root_schedule(misc, tmp_path, name, tolerance):
    """fairseq can start its warmup at a rate of 1e-7; ours starts at 0, as fairseq's does with `warmup_init_lr` -1."""
    case = misc[0]["inverse_sqrt"][name]
    warmup = case["cfg"]["warmup_updates"]
    args = arguments(tmp_path, learning_rate=case["cfg"]["lr"][0], warmup_steps=warmup)
    optimizer = new_optimizer(args, torch.zeros(1), 0.0)
    steps = args.get_warmup_steps(100_000)
    schedule = get_scheduler(args.lr_scheduler_type, optimizer, steps, 100_000).lr_lambdas[0]
    for update, rate in case["lr_after_num_updates"].items():
        ours = args.learning_rate * schedule(int(update))
        assert ours == pytest.approx(rate, rel=1e-12, abs=1.001 * tolerance), update
