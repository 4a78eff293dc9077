"""Gathering the facts of a run for its results.json."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ..hub.run_folder import DataFacts, Divergence, ModelFacts, OmegaFacts, RecipeFacts, Results, TrainingFacts
from ..model.modeling_admin import AdminForConditionalGeneration
from ..system.cpu_features import cpu_name
from ..trainer.admin_trainer import AdminTrainer
from ..trainer.divergence import DivergedError
from ..weights.omega import mean_omega
from ..weights.profiling import omega_origin
from .preparation import Prepared
from .recipe import Recipe

PACKAGES = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "sacrebleu", "admin_nmt")


def run_facts(
    recipe: Recipe,
    prepared: Prepared,
    trainer: AdminTrainer,
    training: TrainingFacts,
    history: list[dict[str, Any]],
    diverged: DivergedError | None = None,
) -> Results:
    """Facts that are known when training has ended, well or by divergence.

    Args:
        trainer: with the weights that are described.
        training: as [`training_facts`] gave them when training ended.
        history: of that moment.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    return Results(
        status="diverged" if diverged else "finished",
        diverged=Divergence(update=diverged.update, reason=str(diverged)) if diverged else None,
        recipe=RecipeFacts(**recipe.as_dict()),
        data=DataFacts(
            filters=prepared.counts,
            sizes={split: len(part) for split, part in prepared.data.items()},
            longest=trainer.longest,
        ),
        model=model_facts(model),
        omega=omega_facts(model),
        training=training,
        versions={"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        commit=commit(),
        history=history,
    )


def model_facts(model: AdminForConditionalGeneration) -> ModelFacts:
    """Shape and size; a tied parameter counts once."""
    config = model.config
    own = ("parameters", "config")
    shape = {name: getattr(config, name) for name in ModelFacts.model_fields if name not in own}
    return ModelFacts(**shape, parameters=sum(p.numel() for p in model.parameters()), config=config.to_diff_dict())


def omega_facts(model: AdminForConditionalGeneration) -> OmegaFacts | None:
    """Origin of ω, and its mean in each sublayer of both stacks; None where the variant has no ω."""
    config = model.config
    if not config.has_omega:
        return None
    return OmegaFacts(origin=omega_origin(config), trained=config.train_omega, **mean_omega(model))


def training_facts(trainer: AdminTrainer) -> TrainingFacts:
    """Settings and effort, from the arguments and the log."""
    args, history = trainer.args, trainer.state.log_history
    logged = [row for row in history if "target_tokens" in row]
    tokens = sum(row["target_tokens"] for row in logged)
    seconds = sum(row["target_tokens"] / row["target_tokens_per_second"] for row in logged)
    return TrainingFacts(
        seed=args.seed,
        optimizer=args.optimizer,
        learning_rate=args.learning_rate,
        warmup_steps=args.warmup_steps,
        max_tokens=args.max_tokens,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        label_smoothing=trainer.model.config.label_smoothing,
        updates=trainer.state.global_step,
        minutes=seconds / 60,
        evaluation_minutes=sum(row.get("eval_runtime", 0.0) for row in history) / 60,
        target_tokens=int(tokens),
        tokens_per_second=tokens / seconds if seconds else None,
        peak_memory_gb=trainer.record.peak_bytes() / 1e9,
        processes=args.world_size,
        threads=torch.get_num_threads(),
        device=device_name(args.device),
        precision=", then ".join(trainer.record.precisions),
        attention=trainer.model.config._attn_implementation,
        activation_checkpointing=bool(args.activation_checkpointing),
    )


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_name()


def commit() -> str | None:
    """The commit of this code, "+" after it if files differ from it; None outside a checkout of it."""
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists():  # installed: a repository further up, if any, is another one
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
