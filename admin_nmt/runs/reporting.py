"""Lines that a run prints about itself: data, model, ω, length of an epoch, memory, and how to go on."""

import copy
import math
import shlex
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from ..data.batching import Survey
from ..data.tokenized_pairs import survey
from ..model.modeling_admin import AdminForConditionalGeneration
from ..system.processes import print_once
from ..trainer.admin_trainer import AdminTrainer
from ..trainer.arguments import AdminTrainingArguments
from ..trainer.memory_prediction import fits, free_memory, not_predicted, predicted_peak
from ..trainer.precision_and_attention import precision
from .recipe import Recipe
from .results import device_name, omega_facts


def training_text(data: dict[str, Any]) -> str:
    """The source of the training pairs, as the section `data` names it."""
    if "builtin" in data:
        return f"the built-in {data['builtin']}"
    corpora = data["train"] if isinstance(data["train"], list) else [data["train"]]
    sides = [[str(corpus[side]) for side in ("source", "target") if corpus.get(side)] for corpus in corpora]
    return ", ".join(" and ".join(names) for names in sides)


def introduce(trainer: AdminTrainer, folder: Path) -> None:
    """Print the model, the machine, the length of an epoch, and the memory that a process will take."""
    if not trainer.is_world_process_zero():
        return
    config, args = trainer.model.config, trainer.args
    size = sum(p.numel() for p in trainer.model.parameters()) / 1e6
    depth = f"{config.encoder_layers}-{config.decoder_layers}"
    print_once(
        f"[2/5] training on {machine(args)}: {config.variant}, {depth} layers, {size:.1f}M parameters, to {folder}"
    )
    epoch = survey(trainer.train_dataset, args.max_tokens, seed=args.batch_seed)
    print_once(f"      {length_of_an_epoch(args, epoch)}")
    print_once(f"      {predicted_memory(trainer, epoch)}")


def machine(args: AdminTrainingArguments) -> str:
    """The processes of a run, and what each has: a GPU, or threads."""
    count, several = args.world_size, args.world_size > 1
    processes = f"{count} processes" if several else "1 process"
    if args.device.type == "cpu":
        threads = torch.get_num_threads()
        return f"{processes} of {threads} {'thread' if threads == 1 else 'threads'}{' each' if several else ''}"
    device = device_name(args.device) if args.device.type == "cuda" else str(args.device)
    return f"{processes}{', each' if several else ''} on {device}"


def length_of_an_epoch(args: AdminTrainingArguments, epoch: Survey) -> str:
    """Pairs, tokens and updates of an epoch, and how many epochs the run makes at most."""
    updates = math.ceil(math.ceil(epoch.batches / args.world_size) / args.gradient_accumulation_steps)
    total = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * updates)
    parts = args.world_size * args.gradient_accumulation_steps
    tokens = f"{parts} × {args.max_tokens:,}" if parts > 1 else f"{args.max_tokens:,}"
    return (
        f"an epoch: {epoch.pairs:,} pairs with {epoch.target_tokens:,} target tokens, in {updates:,} updates of at "
        f"most {tokens} tokens; {total:,} updates are {total / updates:.1f} epochs"
    )


def predicted_memory(trainer: AdminTrainer, epoch: Survey) -> str:
    """Predicted memory of the tensors of a process, or the reason why there is no prediction."""
    args, config = copy.copy(trainer.args), trainer.model.config
    if unknown := not_predicted(args):
        return f"predicted memory: none with {unknown}"
    automatic = args.activation_checkpointing == "auto"
    if automatic:
        args.activation_checkpointing = False
    peak = predicted_peak(config, args, epoch.shapes, config._attn_implementation)
    free = free_memory(args.device)
    text = f"predicted memory of the tensors: {peak / 1e9:.2f} GB"
    if args.world_size > 1:
        text += " a process"
    if automatic:
        text += " without activation checkpointing"
    if trainer.sharding.is_sharded:
        text += " and before sharding"
    text += f"; {free / 1e9:.1f} GB are free"
    return text if automatic or fits(peak, free / 1e9) else f"warning: {text}: lower training.max_tokens"


class ReportOmega(TrainerCallback):
    """Prints the ω that the run starts with, measured or not."""

    def on_train_begin(self, *args: Any, model: AdminForConditionalGeneration, **kwargs: Any) -> None:
        facts = omega_facts(model)
        if facts is None:
            return
        print_once(f"      scale ω of the skip connections ({facts.origin}), by sublayer:")
        for stack in ("encoder", "decoder"):
            omega = [f"{mean:.2f}" for mean in getattr(facts, stack)]
            shown = " ".join(omega if len(omega) <= 9 else [*omega[:4], "…", *omega[-4:]])
            print_once(f"        {stack}: {shown if len(set(omega)) > 1 else f'{omega[0]} in all {len(omega)}'}")


class ReportSettings(TrainerCallback):
    """Prints precision, attention and checkpointing, as they were chosen for the GPU or the CPU."""

    def on_train_begin(
        self, args: AdminTrainingArguments, *_: Any, model: AdminForConditionalGeneration, **kwargs: Any
    ) -> None:
        checkpointing = "on" if args.activation_checkpointing else "off"
        attention = f"attention: {model.config._attn_implementation}; " if args.device.type == "cpu" else ""
        batches = ""
        if args.auto_micro_batch and args.device.type == "cuda":
            batches = f"; batches of {args.max_tokens:,} tokens, {args.gradient_accumulation_steps} an update"
        chosen = precision(args, model.config)
        print_once(f"      precision: {chosen}; {attention}activation checkpointing: {checkpointing}{batches}")


def closing_lines(recipe: Recipe, model: Path) -> str:
    """The note of the recipe's author on the model, and the command that translates a sentence."""
    known = f"      {' '.join(recipe.card.note.split())}\n" if recipe.card.note else ""
    example = shlex.quote(recipe.card.example or "...")
    return f"{known}translate: admin-nmt translate {shlex.quote(str(model))} --text {example}"
