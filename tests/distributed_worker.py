"""What trainer/test_distributed.py runs in every process: `torchrun ... distributed_worker.py CHECKPOINT FOLDER`."""

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from toy import SaveAfter, StopAfter, budget_for, poison, random_ids, small_config
from transformers import TrainerCallback

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.decoding.search.generation import generate_ids
from admin_nmt.system.processes import rank_and_size
from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.arguments import AdminTrainingArguments
from admin_nmt.trainer.callbacks import StopRequestedError
from admin_nmt.trainer.divergence import DivergedError
from admin_nmt.trainer.evaluation import mean_nll
from admin_nmt.trainer.sharding import load_weights, whole_weights

BATCHES = 8  # of an epoch
UPDATES = 9
SAVED = 3
SECOND_EPOCH = 5  # updates after which two processes are in it
FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}


def new_trainer(
    folder: Path, dropout: float, accumulation: int, *callbacks: TrainerCallback, **fields: Any
) -> AdminTrainer:
    torch.manual_seed(1)
    data = random_ids(24)
    updates = {"max_tokens": budget_for(data, BATCHES), "max_steps": UPDATES, "save_strategy": "no"}
    updates |= {"gradient_accumulation_steps": accumulation, "learning_rate": 1e-2, "warmup_steps": 2}
    quiet = {"eval_bleu": False, "disable_tqdm": True, "use_cpu": True, "logging_steps": 1, "profile_tokens": 60}
    quiet |= {"activation_checkpointing_kwargs": {"every_n_layers": 2}}
    quiet["activation_checkpointing"] = "WORLD_SIZE" in os.environ  # only where there are several processes
    args = AdminTrainingArguments(str(folder), **updates | quiet | fields)
    config = small_config(encoder_layers=2, decoder_layers=1, omega_rule="profile", dropout=dropout)
    given = {"train_dataset": data, "eval_dataset": random_ids(4, seed=1), "callbacks": list(callbacks)}
    return AdminTrainer(AdminForConditionalGeneration(config), args, **given)


def train_and_evaluate(folder: Path, accumulation: int, resume: Path | None = None) -> dict:
    """One run, which leaves a checkpoint, and its evaluation; everything is the same on any number of processes."""
    trainer = new_trainer(folder, 0.0, accumulation, SaveAfter(SAVED))
    trainer.train(resume_from_checkpoint=resume)
    sources = random_ids(5, seed=2)["input_ids"][:]
    with trainer.whole_model():
        nll = mean_nll(trainer.model, random_ids(7, seed=1), max_tokens=20)
        translations = generate_ids(trainer.model, sources, batch_tokens=20, num_beams=2)
    weights = {name: tensor.clone() for name, tensor in whole_weights(trainer.model, keep=True).items()}
    load_weights(trainer.model, {name: 2 * tensor for name, tensor in weights.items()})
    doubled = whole_weights(trainer.model, keep=True)
    return {
        "weights": weights,
        "log": [(entry["loss"], entry["nll"], entry["grad_norm"]) for entry in trainer.state.log_history[:UPDATES]],
        "nll": nll,
        "translations": translations,
        "local_size": sum(p.to_local().numel() if hasattr(p, "to_local") else 0 for p in trainer.model.parameters()),
        "takes other weights": all(torch.equal(doubled[name], 2 * tensor) for name, tensor in weights.items()),
    }


class Terminate(TrainerCallback):
    """Sends this process SIGTERM during an update."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.update - 1:
            os.kill(os.getpid(), signal.SIGTERM)


def stop_and_resume(folder: Path, update: int) -> dict:
    """Weights of a straight run, and of one that SIGTERM to the last process stopped after an update.

    It goes on from the checkpoint before, because the last one is damaged.
    """
    straight = new_trainer(folder, 0.1, 1)
    straight.train()
    rank, size = rank_and_size()
    callbacks = [SaveAfter(update - 1), *([Terminate(update - 1)] if rank == size - 1 else [])]
    stopped = new_trainer(folder, 0.1, 1, *callbacks)
    try:
        stopped.train()
        message = "did not stop"
    except StopRequestedError as stop:
        message = str(stop)
    if rank == 0:
        (folder / f"checkpoint-{update}" / "rng_state_1.pth").write_bytes(b"damaged")
    stopped.accelerator.wait_for_everyone()
    resumed = new_trainer(folder, 0.1, 1)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.resumed_from == folder / f"checkpoint-{update - 1}"
    weights = {"straight": straight, "resumed": resumed}
    return {name: whole_weights(run.model, keep=True) for name, run in weights.items()} | {"stop": message}


def predict(folder: Path) -> tuple[list, int]:
    """Labels of five pairs, and the number of predictions, which are logits."""
    found = new_trainer(folder, 0.0, 1).predict(random_ids(5, seed=2))
    return found.label_ids.tolist(), len(found.predictions[0])


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


def train_in_bfloat16(folder: Path) -> dict:
    """The log of three updates in bfloat16, and the types of what a layer reads and of what the model gives."""
    trainer = new_trainer(folder, 0.0, 1, StopAfter(3), bf16=True)
    dtypes = set()
    for layer in trainer.model.model.decoder.layers:
        layer.register_forward_pre_hook(lambda module, args: dtypes.add(args[0].dtype))
    trainer.model.register_forward_hook(
        lambda module, args, output: dtypes.update((output.loss.dtype, output.nll.dtype))
    )
    trainer.train()
    return {"dtypes": dtypes, "log": [(entry["loss"], entry["nll"]) for entry in trainer.state.log_history[:3]]}


def log_with_its_own_tokens(folder: Path) -> list[tuple[float, float]]:
    """Loss and NLL of two updates that each process divides by its own tokens."""
    trainer = new_trainer(folder, 0.0, 1, StopAfter(2), average_tokens_across_devices=False)
    trainer.train()
    return [(entry["loss"], entry["nll"]) for entry in trainer.state.log_history[:2]]


def train_twice_with_master_weights(folder: Path) -> list[torch.Tensor]:
    """The weights of this process after a trainer has trained twice."""
    trainer = new_trainer(folder, 0.0, 1, StopAfter(2), master_weights=True, activation_checkpointing=False)
    trainer.train()
    trainer.train()
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def everything(checkpoint: Path, folder: Path) -> dict:
    """All that is tested with all weights on each process and with parts of them."""
    result = train_and_evaluate(folder / "run", accumulation=1)
    result["continued"] = train_and_evaluate(folder / "continued", accumulation=1, resume=checkpoint)
    result["bfloat16"] = train_in_bfloat16(folder / "bfloat16")
    return result | stop_and_resume(folder / "stopped", SECOND_EPOCH + 1)


if __name__ == "__main__":
    gc.freeze()  # what is imported: every training begins with a garbage collection
    checkpoint, out = map(Path, sys.argv[1:])
    results = {"ddp": everything(checkpoint, out / "ddp")}
    results["divergence"] = diverge_on_the_last_rank(out / "diverged", update=4)
    results["own tokens"] = log_with_its_own_tokens(out / "own-tokens")
    results["predicted"] = predict(out / "predicted")
    results["twice"] = train_twice_with_master_weights(out / "twice")
    os.environ.update(FSDP2)
    results["fsdp2"] = everything(checkpoint, out / "fsdp2")
    torch.save(results, out / f"rank{rank_and_size()[0]}.pt")
