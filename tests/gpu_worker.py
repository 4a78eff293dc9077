"""What tests/test_on_a_gpu.py runs in every process: `torchrun ... gpu_worker.py DEVICE FOLDER`."""

import os
import sys
from pathlib import Path

import torch
from distributed_worker import FSDP2, WIDTHS
from toy import even_budget, random_ids

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.system.processes import rank_and_size
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.evaluation import mean_nll
from admin_nmt.trainer.sharding import gather_shards
from admin_nmt.weights.folding import omega_by_sublayer

UPDATES = 6


def train_a_fresh_profiled_model(folder: Path, device: str, accumulation: int) -> dict:
    """The losses of a run in bf16, ω as it was measured, and the NLL of other pairs afterwards."""
    torch.manual_seed(1)
    data = random_ids(24)
    sizes = {"vocab_size": 99, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 64}
    widths = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in WIDTHS.items()}
    model = AdminForConditionalGeneration(
        AdminConfig(**sizes, **widths, variant="admin", omega_rule="profile", dropout=0.0)
    )
    args = AdminTrainingArguments(
        str(folder),
        max_tokens=even_budget(data),
        max_steps=UPDATES,
        gradient_accumulation_steps=accumulation,
        learning_rate=1e-3,
        warmup_steps=2,
        profile_tokens=60,
        save_strategy="no",
        eval_bleu=False,
        disable_tqdm=True,
        use_cpu=device == "cpu",
        bf16=True,
        logging_steps=1,
    )
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
