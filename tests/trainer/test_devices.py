"""What differs between a CPU and a GPU, or one process and several, as far as it can be seen with one CPU."""

import math
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from accelerate.optimizer import AcceleratedOptimizer
from distributed_worker import new_trainer

from admin_nmt.distributed import wait_at_most
from admin_nmt.trainer import admin_trainer
from admin_nmt.trainer.arguments import AdminTrainingArguments, optimizer_settings
from admin_nmt.trainer.callbacks import TokenMeter
from admin_nmt.trainer.divergence import diverged


def test_omega_is_measured_where_the_model_is(tmp_path, monkeypatch):
    """Under FSDP and DeepSpeed the model is still on the CPU then, whatever device is to train it."""
    expected, trainer = (new_trainer(tmp_path, 0.0, 1) for _ in range(2))
    expected.measure_omega()
    monkeypatch.setattr(AdminTrainingArguments, "device", torch.device("meta"))
    trainer.measure_omega()
    torch.testing.assert_close(trainer.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)


def test_every_process_has_the_omega_of_the_first(tmp_path, monkeypatch):
    """DDP is told not to send the buffers, in which ω is."""
    trainer = new_trainer(tmp_path, 0.0, 1)
    first = {"encoder": [1.0, 1.25, 1.5, 1.75], "decoder": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    monkeypatch.setattr(admin_trainer, "gather_objects", lambda measured: [first, measured])
    trainer.measure_omega()
    for name, values in first.items():
        blocks = getattr(trainer.model.model, name).residual_blocks()
        assert [block.omega.unique().item() for block in blocks] == values
    assert trainer.args.ddp_broadcast_buffers is False


def test_no_buffer_changes_in_training(tiny_model, batch):
    """So DDP need not send them before every forward pass."""
    for variant in ("admin", "deepnorm", "dlcl_pre_ln"):
        model = tiny_model(variant=variant, dropout=0.1).train()
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        model(**batch).loss.backward()
        torch.testing.assert_close(dict(model.named_buffers()), before, rtol=0, atol=0)


def test_the_log_sums_in_float32(tmp_path):
    meter, accelerator = TokenMeter(), new_trainer(tmp_path, 0.0, 1).accelerator
    for _ in range(100):
        meter.add_tokens(torch.tensor(1))
        meter.add_nll(torch.tensor(12_352, dtype=torch.bfloat16))
    assert meter.read(accelerator)["nll"] == 12_352


def test_waiting_is_limited(tmp_path):
    wait_at_most(timedelta(seconds=5))  # does nothing in a process that is alone
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        assert group.options._timeout > timedelta(minutes=1)
        wait_at_most(timedelta(seconds=50))
        assert group.options._timeout == timedelta(seconds=50)
    finally:
        dist.destroy_process_group()


def test_says_whether_the_update_was_made(tmp_path):
    """DeepSpeed makes it in the backward pass."""
    assert "The update was not made." in str(diverged(5, math.nan, math.nan, 0.1, str(tmp_path)))
    assert "The update was made by then." in str(diverged(5, math.nan, math.nan, 0.1, str(tmp_path), made=True))


@pytest.mark.parametrize("name", ["radam", "adam"])
def test_an_overflow_is_seen_as_an_update_that_was_skipped(tmp_path, name):
    """The schedule makes a step for every update that was not."""
    args = new_trainer(tmp_path, 0.0, 1, optimizer=name).args
    args.fp16 = True  # which is refused on a CPU
    kind, settings = optimizer_settings(args)
    parameter = torch.nn.Parameter(torch.ones(3))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = AcceleratedOptimizer(kind([parameter], **settings), scaler=scaler)
    for factor, skipped in ((1.0, False), (math.inf, True), (2.0, False)):
        optimizer.zero_grad()
        scaler.scale((factor * parameter).sum()).backward()
        before = parameter.detach().clone()
        optimizer.step()
        assert optimizer.step_was_skipped == skipped == torch.equal(parameter, before)
