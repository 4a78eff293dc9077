"""What tests/test_on_a_gpu.py runs in every process: `torchrun ... gpu_worker.py DEVICE FOLDER`."""

import os
import sys
from pathlib import Path

import torch
from distributed_worker import FSDP2
from toy import budget_for, random_ids, small_config

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.system.processes import gather_shards, rank_and_size
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.evaluation import mean_nll
from admin_nmt.weights.omega import omega_by_sublayer


def train_a_fresh_profiled_model(folder: Path, device: str, accumulation: int) -> dict:
    """The losses of a run in bf16, ω as it was measured, and the NLL of other pairs afterwards."""
    torch.manual_seed(1)
    data = random_ids(24)
    model = AdminForConditionalGeneration(small_config(encoder_layers=2, omega_rule="profile"))
    updates = {"max_tokens": budget_for(data, 8), "max_steps": 6, "gradient_accumulation_steps": accumulation}
    schedule = {"learning_rate": 1e-3, "warmup_steps": 2, "profile_tokens": 60, "bf16": True, "logging_steps": 1}
    quiet = {"save_strategy": "no", "eval_bleu": False, "disable_tqdm": True, "use_cpu": device == "cpu"}
    args = AdminTrainingArguments(str(folder), **updates, **schedule, **quiet)
    trainer = AdminTrainer(model, args, train_dataset=data)
    trainer.train()
    with trainer.whole_model():
        nll = mean_nll(trainer.model, random_ids(7, seed=1), max_tokens=20)
    return {
        "losses": [row["loss"] for row in trainer.state.log_history if "loss" in row],
        "omega": [float(gather_shards(omega).float().mean()) for omega in omega_by_sublayer(model).values()],
        "nll": nll,
        "sharded": trainer.sharding.is_sharded,
    }


if __name__ == "__main__":
    os.environ.update(FSDP2)
    device, folder = sys.argv[1], Path(sys.argv[2])
    found = train_a_fresh_profiled_model(folder / "run", device, accumulation=1)
    torch.save(found, folder / f"rank{rank_and_size()[0]}.pt")
