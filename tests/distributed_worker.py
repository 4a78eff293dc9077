"""What tests/test_distributed.py runs in every process: `torchrun ... distributed_worker.py FOLDER`."""

import sys
from pathlib import Path

import torch
from toy import StopAfter, poison, random_ids
from transformers import TrainerCallback

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.distributed import gather_objects, rank_and_size
from admin_nmt.divergence import DivergedError
from admin_nmt.evaluation import mean_nll
from admin_nmt.generation import generate_ids
from admin_nmt.trainer import AdminTrainer
from admin_nmt.training_arguments import AdminTrainingArguments

UPDATES = 9
WIDTHS = {"ffn_dim": 32, "attention_heads": 4}


def new_trainer(folder: Path, dropout: float, accumulation: int, *callbacks: TrainerCallback) -> AdminTrainer:
    torch.manual_seed(1)
    sizes = {"vocab_size": 99, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 64}
    widths = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in WIDTHS.items()}
    args = AdminTrainingArguments(
        str(folder),
        max_tokens=40,
        max_steps=UPDATES,
        gradient_accumulation_steps=accumulation,
        learning_rate=1e-2,
        warmup_steps=2,
        profile_tokens=60,
        save_strategy="no",
        eval_bleu=False,
        disable_tqdm=True,
        use_cpu=True,
        logging_steps=1,
    )
    model = AdminForConditionalGeneration(AdminConfig(**sizes, **widths, dropout=dropout))
    return AdminTrainer(model, args, train_dataset=random_ids(24), callbacks=list(callbacks))


def train_and_evaluate(folder: Path, accumulation: int) -> dict:
    """One run and its evaluation; everything in it must be the same on any number of processes."""
    trainer = new_trainer(folder, 0.0, accumulation)
    trainer.train()
    batches = len(trainer.epoch_shuffle.sampler)
    assert batches % 2 == 0
    return {
        "weights": {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()},
        "log": [(entry["loss"], entry["nll"], entry["grad_norm"]) for entry in trainer.state.log_history[:UPDATES]],
        "nll": mean_nll(trainer.model, random_ids(7, seed=1), max_tokens=20),
        "translations": generate_ids(trainer.model, random_ids(5, seed=2)["input_ids"][:], max_tokens=20, num_beams=2),
    }


def interrupt_and_resume(folder: Path, update: int) -> tuple[dict, dict]:
    """Weights of a straight run, and of one that was interrupted after an update."""
    straight = new_trainer(folder, 0.1, 1)
    straight.train()
    new_trainer(folder, 0.1, 1, StopAfter(update)).train()
    resumed = new_trainer(folder, 0.1, 1)
    resumed.train(resume_from_checkpoint=True)
    return straight.model.state_dict(), resumed.model.state_dict()


def diverge_on_the_last_rank(folder: Path, update: int) -> str:
    """The message of this process when one process's loss is NaN at an update."""
    trainer = new_trainer(folder, 0.0, 1)
    rank, size = rank_and_size()
    if rank == size - 1:
        poison(trainer.model, trainer, update)
    try:
        trainer.train()
    except DivergedError as error:
        return str(error)
    return "did not diverge"


if __name__ == "__main__":
    out = Path(sys.argv[1])
    result = train_and_evaluate(out / "run", accumulation=1)
    result["gathered"] = gather_objects(rank_and_size())
    result["straight"], result["resumed"] = interrupt_and_resume(out / "resumed", update=3)
    result["divergence"] = diverge_on_the_last_rank(out / "diverged", update=4)
    torch.save(result, out / f"rank{rank_and_size()[0]}.pt")
