"""What an update costs the host: questions to the GPU, passes over the gradients."""

import math

import pytest
import torch
from torch import nn
from toy import random_ids

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.trainer import arguments as arguments_module
from admin_nmt.trainer import divergence, hooks
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.divergence import DivergedError
from admin_nmt.trainer.optimizers.fused_radam import FusedRAdam


@pytest.fixture
def new_trainer(tmp_path, tiny_config):
    """Builds a trainer for nine updates of a model that is the same at every call."""

    def build(callbacks=(), **fields) -> AdminTrainer:
        torch.manual_seed(1)
        model = AdminForConditionalGeneration(tiny_config(omega_rule="log_n"))
        small = {"max_tokens": 40, "max_steps": 9, "warmup_steps": 2, "logging_steps": 1, "save_strategy": "no"}
        quiet = {"eval_bleu": False, "disable_tqdm": True, "use_cpu": True}
        args = AdminTrainingArguments(str(tmp_path / "run"), **small | quiet | fields)
        return AdminTrainer(model, args, train_dataset=random_ids(40), callbacks=list(callbacks))

    return build


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """The optimizers, and who leaves an update out, as on a GPU."""
    monkeypatch.setattr(divergence, "skips_by_itself", lambda *_: True)
    monkeypatch.setattr(torch.optim, "RAdam", FusedRAdam)


def logged(trainer: AdminTrainer, name: str) -> list[float]:
    return [row[name] for row in trainer.state.log_history if name in row]


def test_the_norm_is_the_trainers(new_trainer, monkeypatch):
    ours = new_trainer()
    ours.train()
    monkeypatch.setattr(hooks, "gradient_norm", lambda parameters: None)
    theirs = new_trainer()
    theirs.train()
    torch.testing.assert_close(ours.model.state_dict(), theirs.model.state_dict(), rtol=0, atol=0)
    assert logged(ours, "grad_norm") == logged(theirs, "grad_norm")


def test_gradients_are_not_multiplied_where_nothing_is_clipped(new_trainer, monkeypatch):
    clipped = []
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda parameters, *_, **__: clipped.append(list(parameters)))
    new_trainer().train()
    assert not clipped


def test_clipping_is_the_trainers(new_trainer):
    trainer = new_trainer(max_grad_norm=0.5)
    trainer.train()
    assert max(logged(trainer, "grad_norm")) > 0.5


@pytest.mark.parametrize("optimizer", ["radam", "adam"])
def test_a_gpu_that_leaves_updates_out_trains_the_same(new_trainer, as_on_a_gpu, monkeypatch, optimizer):
    found = new_trainer(optimizer=optimizer)
    found.train()
    monkeypatch.undo()
    expected = new_trainer(optimizer=optimizer)
    expected.train()
    assert type(found.optimizer.optimizer) is not torch.optim.RAdam
    torch.testing.assert_close(logged(found, "loss"), logged(expected, "loss"), rtol=1e-6, atol=0)


@pytest.mark.parametrize("optimizer", ["radam", "adam"])
@pytest.mark.parametrize("update", [3, 8], ids=["before the rectification", "after"])
def test_a_gpu_stops_at_divergence_with_the_weights_before(new_trainer, as_on_a_gpu, optimizer, update):
    trainer = new_trainer(optimizer=optimizer)
    weights = {}

    def spoil(model, args, kwargs):
        if trainer.state.global_step == update - 1:
            weights.update({name: tensor.clone() for name, tensor in model.state_dict().items()})

    trainer.model.register_forward_pre_hook(spoil, with_kwargs=True)
    poison_update(trainer, update)
    with pytest.raises(DivergedError, match=f"diverged at update {update}: loss nan, gradient norm nan.*was not made"):
        trainer.train()
    torch.testing.assert_close(dict(trainer.model.state_dict()), weights, rtol=0, atol=0)


def poison_update(trainer: AdminTrainer, update: int) -> None:
    """The loss of this update is not a number."""
    compute = trainer.compute_loss

    def compute_loss(*args, **kwargs):
        loss = compute(*args, **kwargs)
        if trainer.state.global_step != update - 1:
            return loss
        trainer.guard.add_loss(loss * math.nan)
        return loss * math.nan

    trainer.compute_loss = compute_loss


def test_the_norm_is_not_waited_for(new_trainer, as_on_a_gpu):
    trainer = new_trainer(optimizer="adam")
    trainer.create_optimizer()
    trainer.optimizer = trainer.accelerator.prepare(trainer.optimizer)
    norm = torch.ones((), device="meta")  # where a question for its value is an error
    trainer.guard.check(norm, trainer.optimizer, trainer.args, trainer.state)
    assert trainer.optimizer.optimizer.found_inf.is_meta
    with pytest.raises(RuntimeError, match="meta"):
        trainer.guard.on_optimizer_step(trainer.args, trainer.state, trainer.control, optimizer=trainer.optimizer)


@pytest.mark.parametrize(("device", "kind"), [("cpu", FusedRAdam), ("cuda", FusedRAdam), ("mps", torch.optim.RAdam)])
def test_radam_is_fused_where_there_is_a_kernel(new_trainer, monkeypatch, device, kind):
    args = new_trainer().args
    monkeypatch.setattr(AdminTrainingArguments, "device", torch.device(device))
    assert arguments_module.optimizer_settings(args)[0] is kind
