"""What differs between a CPU and a GPU, or one process and several, as far as it can be seen with one CPU."""

import math
import os
import platform

import pytest
import torch
from accelerate.optimizer import AcceleratedOptimizer
from distributed_worker import new_trainer
from toy import StopAfter

from admin_nmt.trainer import admin_trainer, process_memory
from admin_nmt.trainer.arguments import AdminTrainingArguments, optimizer_settings
from admin_nmt.trainer.process_memory import keep_freed_memory, let_segments_grow


def test_omega_is_measured_where_the_model_is(tmp_path, monkeypatch):
    """Which may still be the CPU, whatever device is to train it."""
    expected, trainer = (new_trainer(tmp_path, 0.0, 1) for _ in range(2))
    expected.measure_omega()
    monkeypatch.setattr(AdminTrainingArguments, "device", torch.device("meta"))
    trainer.measure_omega()
    torch.testing.assert_close(trainer.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)


def test_every_process_has_the_omega_of_the_first(tmp_path, monkeypatch):
    """DDP is told not to send the buffers, in which ω is."""
    trainer = new_trainer(tmp_path, 0.0, 1)
    first = {"encoder": [1.0, 1.25, 1.5, 1.75], "decoder": [1.0, 2.0, 3.0]}
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


@pytest.mark.parametrize(("fields", "expected"), [({}, False), ({"cudnn_attention": True}, True)])
def test_attention_is_not_left_to_cudnn(tmp_path, monkeypatch, fields, expected):
    """On a device that is no CPU, unless it is asked for."""
    run = new_trainer(tmp_path, 0.0, 1, StopAfter(1), **fields)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr(type(run.args), "device", torch.device("meta"))
    monkeypatch.setattr(admin_trainer, "checkpoint_to_resume", lambda *_: 1 / 0)  # what comes next
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        with pytest.raises(ZeroDivisionError):
            run.train()
        assert torch.backends.cuda.cudnn_sdp_enabled() == expected
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize(
    "legs",
    [
        [{}, {"activation_checkpointing": True}],
        pytest.param([{"dataloader_num_workers": 1}] * 2, marks=pytest.mark.slow),
    ],
    ids=["checkpointing", "workers"],
)
def test_a_run_goes_on_bit_for_bit_where_layers_are_recomputed_or_workers_load_the_batches(tmp_path, legs):
    """The recomputed layers draw the random numbers of the first time: dropout is the same."""
    straight = new_trainer(tmp_path / "straight", 0.1, 1, StopAfter(5))
    straight.train()
    for update, fields in zip((2, 5), legs, strict=True):
        run = new_trainer(tmp_path / "run", 0.1, 1, StopAfter(update), **fields)
        run.train(resume_from_checkpoint=update == 5)
    torch.testing.assert_close(run.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0)


def test_cudas_segments_grow_unless_the_environment_says_otherwise(monkeypatch):
    monkeypatch.setattr(process_memory.sys, "platform", "linux")
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8")
    let_segments_grow()
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "garbage_collection_threshold:0.8"
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    let_segments_grow()
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"


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


def page_faults_of_a_large_tensor() -> int:
    import resource  # not on Windows

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_large_tensor_reuses_freed_memory():
    assert keep_freed_memory()
    # Without reuse it takes one for each of its 16,384 pages, every time.
    assert min(page_faults_of_a_large_tensor() for _ in range(8)) < 1000
