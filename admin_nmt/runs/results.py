"""The facts of a run: what its results.json, and with it the model card, the tables and the plots are made of."""

import json
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, ValidationError, create_model

from admin_nmt import AdminForConditionalGeneration, AdminTrainer

from ..data.tokenizing import longest_sentence
from ..system.cpu_features import cpu_name
from ..system.files import json_text, write_text_whole
from ..system.messages import sentence
from ..trainer.callbacks import PeakMemory, callback_of
from ..trainer.divergence import DivergedError
from ..trainer.fsdp import gather_shards
from ..weights.folding import omega_by_sublayer
from ..weights.profiling import omega_origin
from .preparation import Prepared
from .recipe import Recipe

FILE = "results.json"
PACKAGES = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "sacrebleu", "admin_nmt")
SHAPE = (
    "variant", "encoder_layers", "decoder_layers", "d_model", "encoder_ffn_dim", "decoder_ffn_dim",
    "encoder_attention_heads", "decoder_attention_heads", "vocab_size", "decoder_vocab_size",
)  # fmt: skip
DEGENERATE = 0.1  # different translations of each different source, at most: the model hardly reads them
SETTINGS = ("seed", "optimizer", "learning_rate", "warmup_steps", "max_tokens", "gradient_accumulation_steps")


def _form(**fields: Any) -> Any:
    """A mapping in which each field, where it is there and not null, is of this type; other fields may be anything."""
    types: dict[str, Any] = {name: (kind | None, None) for name, kind in fields.items()}
    return create_model("Form", __config__=ConfigDict(strict=True), **types)


Number = int | float
Mapping = dict[str, Any]
SCORES = ("bleu", "chrf", "ter")
COUNTS = ("updates", "target_tokens", "max_tokens", "gradient_accumulation_steps", "processes")
MEASURES = ("minutes", "evaluation_minutes", "tokens_per_second", "peak_memory_gb", "warmup_steps")
ResultsForm = _form(
    status=str,
    diverged=_form(update=int, reason=str),
    recipe=_form(output_dir=str, languages=list[str], data=Mapping, tokenizer=Mapping, model=Mapping, card=Mapping),
    data=_form(filters=dict[str, int], sizes=dict[str, int], longest=int),
    model=_form(variant=str, **dict.fromkeys(("encoder_layers", "decoder_layers", "parameters"), int), config=Mapping),
    omega=_form(origin=str, encoder=list[Number], decoder=list[Number]),
    training=_form(**dict.fromkeys(COUNTS, int), **dict.fromkeys(MEASURES, Number), device=str),
    versions=dict[str, str],
    commit=str,
    history=list[_form(step=int, nll=Number, eval_loss=Number, eval_bleu=Number)],  # type: ignore[misc]
    search=Mapping,
    chosen=_form(kind=str, valid=dict[str, dict[str, Number]]),
    export=Mapping,
    test=_form(**dict.fromkeys(SCORES, Number), **{f"{name}_signature": str for name in SCORES}),
    test_sentences=int,
    distinct_translations=Number,
    decoding=Mapping,
)
"""What cards, tables and plots read of results.json."""


def run_facts(recipe: Recipe, prepared: Prepared, trainer: AdminTrainer) -> dict[str, Any]:
    """What is known when training has ended, well or not."""
    return {
        "recipe": recipe.as_dict(),
        "data": {
            "filters": prepared.counts,
            "sizes": {split: len(part) for split, part in prepared.data.items()},
            "longest": longest_sentence(prepared.data["train"]),
        },
        "model": model_facts(trainer.accelerator.unwrap_model(trainer.model)),
        "omega": omega_facts(trainer.accelerator.unwrap_model(trainer.model)),
        "training": training_facts(trainer),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
        "commit": commit(),
        "history": trainer.state.log_history,
    }


def model_facts(model: AdminForConditionalGeneration) -> dict[str, Any]:
    """Shape and size; a tied parameter counts once."""
    config = model.config
    return {name: getattr(config, name) for name in SHAPE} | {
        "parameters": sum(p.numel() for p in model.parameters()),
        "config": config.to_diff_dict(),
    }


def omega_facts(model: AdminForConditionalGeneration) -> dict[str, Any] | None:
    """Where ω came from, and its mean in each sublayer of both stacks."""
    config = model.config
    if not config.has_omega:
        return None
    means: dict[str, list[float]] = {"encoder": [], "decoder": []}
    for sublayer, omega in omega_by_sublayer(model).items():
        means[sublayer.split()[0]].append(float(gather_shards(omega).mean()))
    return {"origin": omega_origin(config), "trained": config.train_omega} | means


def training_facts(trainer: AdminTrainer) -> dict[str, Any]:
    """Settings and effort; minutes and memory are those of all legs of a run that was resumed, the minutes without
    its evaluations."""
    args, history = trainer.args, trainer.state.log_history
    logged = [row for row in history if "target_tokens" in row]
    tokens = sum(row["target_tokens"] for row in logged)
    seconds = sum(row["target_tokens"] / row["target_tokens_per_second"] for row in logged)
    return {name: getattr(args, name) for name in SETTINGS} | {
        "label_smoothing": trainer.model.config.label_smoothing,
        "updates": trainer.state.global_step,
        "minutes": seconds / 60,
        "evaluation_minutes": sum(row.get("eval_runtime", 0.0) for row in history) / 60,
        "target_tokens": int(tokens),
        "tokens_per_second": tokens / seconds if seconds else None,
        "peak_memory_gb": callback_of(trainer, PeakMemory).bytes() / 1e9,
        "processes": args.world_size,
        "threads": torch.get_num_threads(),
        "device": device_name(trainer.args.device),
        "precision": ", then ".join(trainer.precisions),
        "attention": trainer.model.config._attn_implementation,
        "activation_checkpointing": bool(args.activation_checkpointing),
    }


def reference_name(number: int) -> str:
    """What a run calls the references of its test set: test.ref, then test.ref1, test.ref2 and so on."""
    return f"test.ref{number or ''}"


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


def divergence_facts(error: DivergedError) -> dict[str, Any]:
    """The entries of a run that had to stop."""
    return {"status": "diverged", "diverged": {"update": error.update, "reason": str(error)}}


def write_results(folder: Path, results: dict[str, Any]) -> None:
    """Write results.json in one step, so that it is there whole or not at all."""
    write_text_whole(folder / FILE, json_text(results, indent=1) + "\n")


def load_results(folder: Path) -> dict[str, Any]:
    """The facts of a run that has ended.

    Raises:
        ValueError: naming the file, which is absent or damaged.
    """
    file = folder / FILE
    if not file.is_file():
        raise ValueError(f"{file}: is missing, so the run has not finished, or this is no run")
    try:
        results = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: is no valid JSON ({error}); train the model anew") from error
    if not isinstance(results, dict):
        raise ValueError(f"{file}: is no JSON object; train the model anew")
    try:
        ResultsForm.model_validate(results)
    except ValidationError as error:
        raise ValueError(f"{file}: {sentence(error, results)[1]}; train the model anew") from error
    return results


def results_or_none(folder: Path) -> dict[str, Any] | None:
    """The facts of a run that has ended, None of one that has not, or whose file is damaged."""
    try:
        return load_results(folder)
    except ValueError:
        return None
