"""What differs between a CPU and a GPU, as far as it can be seen without one."""

import pytest
import torch
from distributed_worker import new_trainer

from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.callbacks import TokenMeter


def test_omega_is_measured_where_the_model_is(tmp_path, monkeypatch):
    """Under FSDP and DeepSpeed the model is still on the CPU then, whatever device is to train it."""
    expected, trainer = (new_trainer(tmp_path, 0.0, 1) for _ in range(2))
    expected.measure_omega()
    monkeypatch.setattr(AdminTrainingArguments, "device", torch.device("meta"))
    trainer.measure_omega()
    torch.testing.assert_close(trainer.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)


def test_the_log_sums_in_float32(tmp_path):
    meter, accelerator = TokenMeter(), new_trainer(tmp_path, 0.0, 1).accelerator
    for _ in range(100):
        meter.add_tokens(torch.tensor(1))
        meter.add_nll(torch.tensor(12_352, dtype=torch.bfloat16))
    assert meter.read(accelerator)["nll"] == 12_352
