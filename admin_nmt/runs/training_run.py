"""A whole run: train a recipe, choose its best weights, fold them into a stock model and score it on the test set."""

import copy
import math
import shlex
import signal
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import TrainerCallback

from admin_nmt import AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments

from ..data.batching import Survey
from ..data.tokenizing import survey
from ..hub.run_folder import CURVE, FINAL, RESULTS, STANDARD, results_or_none, write_results
from ..metrics.languages import has_words
from ..metrics.scores import check_language
from ..system.processes import print_once, start_processes, wait_at_most
from ..trainer.callbacks import StopRequestedError
from ..trainer.checkpoints import newest_whole_checkpoint
from ..trainer.divergence import DivergedError
from ..trainer.memory_prediction import fits, free_memory, predicted_peak
from ..trainer.precision import precision
from ..trainer.process_memory import let_segments_grow
from .building import build_trainer, training_arguments
from .claim import claim_data, claim_folder
from .finishing import average_or_best, export, record_usual_scores, score_test_set, set_search, write_cards
from .pictures.curves import plot_curve
from .preparation import Prepared, prepare
from .recipe import Recipe
from .results import device_name, model_facts, omega_facts, run_facts
from .training_table import show_table

STOPPED = 128 + signal.SIGTERM  # the exit code by which shells and schedulers know the signal


class ReportOmega(TrainerCallback):
    """Says which ω the run starts with, measured or not."""

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
    """Says what was chosen for the GPU, or for the CPU."""

    def on_train_begin(
        self, args: AdminTrainingArguments, *_: Any, model: AdminForConditionalGeneration, **kwargs: Any
    ) -> None:
        checkpointing = "on" if args.activation_checkpointing else "off"
        attention = f"attention: {model.config._attn_implementation}; " if args.device.type == "cpu" else ""
        batches = f"; batches of {args.max_tokens:,} tokens, {args.gradient_accumulation_steps} an update"
        batches *= args.auto_micro_batch and args.device.type == "cuda"
        chosen = precision(args, model.config)
        print_once(f"      precision: {chosen}; {attention}activation checkpointing: {checkpointing}{batches}")


def run_recipe(recipe: Recipe) -> None:
    """Do all that a recipe says; an interrupted run continues from its last checkpoint.

    Every process of a distributed run calls it. The folder `recipe.output_dir` gets checkpoints, `curve.png`,
    `final/`, `standard/`, the translated test set and, when the run has ended, results.json.

    Raises:
        ValueError: the run is finished already, or the recipe or its data cannot be used.
        DivergedError: training diverged, which results.json then says.
        SystemExit: SIGTERM asked training to stop, and its checkpoint is written.
    """
    folder = Path(recipe.output_dir)
    ended = results_or_none(folder)
    if ended is not None and ended.status == "finished":
        raise ValueError(
            f"{folder} holds a finished run: choose another folder with --output_dir; to train this one further, "
            "delete its results.json and raise training.max_steps"
        )
    check_language(recipe.languages[1])  # before hours of training, not after them
    let_segments_grow()
    start_processes()
    claim_folder(recipe)
    args = training_arguments(recipe)  # refuses bad ones before hours of preparation
    if args.eval_bleu and args.eval_strategy != "no" and not has_words(recipe.languages[1]):
        print_once(
            f"BLEU stays near 0 in {recipe.languages[1]}, which is written without spaces: look at chrF, and choose "
            "the best weights by it with training.metric_for_best_model: eval_chrf"
        )
    print_once(f"[1/5] data: {training_text(recipe.data.given())}")
    prepared = prepare(recipe)
    # While one prepares the data, the others wait for hours; after that it means that one hangs, and it holds them all.
    wait_at_most(args.ddp_timeout_delta)
    claim_data(folder, prepared.data["train"])
    trainer = build_trainer(recipe, prepared)
    trainer.add_callback(ReportOmega())
    trainer.add_callback(ReportSettings())
    introduce(trainer, folder)
    table = show_table(trainer)
    try:
        train(trainer, folder)
    except DivergedError as error:
        results = run_facts(recipe, prepared, trainer, diverged=error)
        if trainer.is_world_process_zero():
            write_results(folder, results)
        raise
    except StopRequestedError as stop:
        print_once(f"      {stop}")
        PartialState().wait_for_everyone()  # launchers kill the others when the first process ends
        raise SystemExit(STOPPED) from None
    finally:
        table.close()
    finish(trainer, recipe, prepared)


def training_text(data: dict[str, Any]) -> str:
    """Where the training pairs come from, as the section `data` names it."""
    if "builtin" in data:
        return f"the built-in {data['builtin']}"
    corpora = data["train"] if isinstance(data["train"], list) else [data["train"]]
    sides = [[str(corpus[side]) for side in ("source", "target") if corpus.get(side)] for corpus in corpora]
    return ", ".join(" and ".join(names) for names in sides)


def introduce(trainer: AdminTrainer, folder: Path) -> None:
    """Say what is trained and where, how long an epoch is, and how much memory a process will take."""
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
        return f"{processes} of {threads} thread{'s' * (threads > 1)}{' each' * several}"
    device = device_name(args.device) if args.device.type == "cuda" else str(args.device)
    return f"{processes}{', each' * several} on {device}"


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
    """What the tensors of a process will take at most, or why that is not predicted."""
    args, config = copy.copy(trainer.args), trainer.model.config
    if args.adversarial_weight or args.master_weights or (args.activation_checkpointing_kwargs or {}).get("offload"):
        return "predicted memory: none for adversarial training, master weights or offloaded activations"
    automatic = args.activation_checkpointing == "auto"
    if automatic:
        args.activation_checkpointing = False
    peak = predicted_peak(config, args, lambda tokens: epoch.shapes, config._attn_implementation)
    free = free_memory(args.device)
    told = f"predicted memory of the tensors: {peak / 1e9:.2f} GB"
    told += " a process" * (args.world_size > 1) + " without activation checkpointing" * automatic
    told += " and before sharding" * trainer.sharding.is_sharded
    told += f"; {free / 1e9:.1f} GB are free"
    return told if automatic or fits(peak, free / 1e9) else f"warning: {told}: lower training.max_tokens"


def train(trainer: AdminTrainer, folder: Path) -> None:
    """Train to the end, from the newest whole checkpoint if there is one; the curve is drawn even if the run stops."""
    checkpoint = newest_whole_checkpoint(folder)
    if checkpoint is not None:
        print_once(f"      continuing from {checkpoint}")
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        if trainer.is_world_process_zero():
            plot_curve(trainer.state.log_history, folder / CURVE)


def finish(trainer: AdminTrainer, recipe: Recipe, prepared: Prepared) -> None:
    """Choose the weights, export and score them, and leave the cards and the results.

    results.json says that the run has ended, so it is written last: the same command then finishes what was cut off.
    """
    folder = Path(recipe.output_dir)
    results = run_facts(recipe, prepared, trainer)
    print_once(f"      {results.training.minutes:.1f} minutes; checkpoints: {folder}, curve: {folder / CURVE}")
    results.search = set_search(trainer, recipe)
    print_once("[3/5] choosing weights on the validation set")
    results.chosen = average_or_best(
        trainer, recipe.evaluation.average_last, folder / FINAL, always_average=recipe.evaluation.always_average
    )
    # ω may be trained: that of the weights which were chosen counts. Saving them completed the configuration.
    model = trainer.accelerator.unwrap_model(trainer.model)
    results.model, results.omega = model_facts(model), omega_facts(model)
    print_once(f"      saved: {folder / FINAL}")
    print_once("[4/5] writing the stock model and checking that it computes the same")
    if trainer.is_world_process_zero():
        results.export = export(folder / FINAL, folder / STANDARD)
    trainer.accelerator.wait_for_everyone()
    standard = folder / STANDARD if (folder / STANDARD).is_dir() else folder / FINAL
    print_once(f"[5/5] test set, beam search with {standard}")
    score_test_set(results, standard, prepared, recipe.evaluation.published_bleu)
    record_usual_scores(standard, prepared.data.get("valid"), {standard, folder / FINAL})
    if trainer.is_world_process_zero():
        write_cards(folder, results)
        write_results(folder, results)
    print_once(f"      results: {folder / RESULTS}")
    print_once(closing_lines(recipe, standard))


def closing_lines(recipe: Recipe, model: Path) -> str:
    """What the model knows, where the recipe's author says it, and the command that translates a sentence."""
    known = f"      {' '.join(recipe.card.note.split())}\n" if recipe.card.note else ""
    example = shlex.quote(recipe.card.example or "...")
    return f"{known}translate: admin-nmt translate {shlex.quote(str(model))} --text {example}"
