"""A whole run: train a recipe, choose its best weights, fold them into a stock model and score it on the test set."""

import signal
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerCallback

from admin_nmt import AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments

from ..console.training_table import show_table
from ..distributed import print_once, start_processes, wait_at_most
from ..figures.curves import plot_curve
from ..metrics.scores import check_language
from ..trainer.allocator import let_segments_grow
from ..trainer.callbacks import StopRequestedError
from ..trainer.checkpoints import newest_whole_checkpoint
from ..trainer.divergence import DivergedError
from .building import build_trainer, training_arguments
from .claim import claim_folder
from .finishing import average_or_best, export, set_search, test_scores, write_cards
from .preparation import Prepared, prepare
from .recipe import Recipe
from .results import (
    divergence_facts,
    model_facts,
    omega_facts,
    precision,
    results_or_none,
    run_facts,
    write_results,
)

STOPPED = 128 + signal.SIGTERM  # the exit code by which shells and schedulers know the signal


class ReportOmega(TrainerCallback):
    """Says which ω the run starts with, measured or not."""

    def on_train_begin(self, *args: Any, model: AdminForConditionalGeneration, **kwargs: Any) -> None:
        facts = omega_facts(model)
        if facts is None:
            return
        for stack in ("encoder", "decoder"):
            omega = [f"{mean:.2f}" for mean in facts[stack]]
            shown = " ".join(omega if len(omega) <= 9 else [*omega[:4], "…", *omega[-4:]])
            print_once(f"      ω ({facts['origin']}), {stack}: {shown}")


class ReportSettings(TrainerCallback):
    """Says what was chosen for the GPU."""

    def on_train_begin(self, args: AdminTrainingArguments, *_: Any, **kwargs: Any) -> None:
        if args.device.type == "cuda":
            checkpointing = "on" if args.activation_checkpointing else "off"
            print_once(f"      precision: {precision(args)}; activation checkpointing: {checkpointing}")


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
    if (results_or_none(folder) or {}).get("status") == "finished":
        raise ValueError(
            f"{folder} holds a finished run: choose another folder with --output_dir; to train this one further, "
            "delete its results.json and raise training.max_steps"
        )
    check_language(recipe.languages[1])  # before hours of training, not after them
    let_segments_grow()
    start_processes()
    claim_folder(recipe)
    args = training_arguments(recipe)  # refuses bad ones before hours of preparation
    print_once(f"[1/5] data: {training_text(recipe.data.given())}")
    prepared = prepare(recipe)
    # While one prepares the data, the others wait for hours; after that it means that one hangs, and it holds them all.
    wait_at_most(args.ddp_timeout_delta)
    trainer = build_trainer(recipe, prepared)
    trainer.add_callback(ReportOmega())
    trainer.add_callback(ReportSettings())
    introduce(trainer, folder)
    table = show_table(trainer)
    try:
        train(trainer, folder)
    except DivergedError as error:
        results = divergence_facts(error) | run_facts(recipe, prepared, trainer)
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
    """Say what is trained."""
    config = trainer.model.config
    size = sum(p.numel() for p in trainer.model.parameters()) / 1e6
    depth = f"{config.encoder_layers}-{config.decoder_layers}"
    where = f" on {trainer.args.world_size} processes" if trainer.args.world_size > 1 else ""
    print_once(f"[2/5] training{where}: {config.variant}, {depth} layers, {size:.1f}M parameters, to {folder}")


def train(trainer: AdminTrainer, folder: Path) -> None:
    """Train to the end, from the newest whole checkpoint if there is one; the curve is drawn even if the run stops."""
    checkpoint = newest_whole_checkpoint(folder)
    if checkpoint is not None:
        print_once(f"      continuing from {checkpoint}")
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        if trainer.is_world_process_zero():
            plot_curve(trainer.state.log_history, folder / "curve.png")


def finish(trainer: AdminTrainer, recipe: Recipe, prepared: Prepared) -> None:
    """Choose the weights, export and score them, and leave the cards and the results.

    results.json says that the run has ended, so it is written last: the same command then finishes what was cut off.
    """
    folder = Path(recipe.output_dir)
    results = {"status": "finished", "diverged": None} | run_facts(recipe, prepared, trainer)
    print_once(
        f"      {results['training']['minutes']:.1f} minutes; checkpoints: {folder}, curve: {folder / 'curve.png'}"
    )
    results["search"] = set_search(trainer, recipe)
    print_once("[3/5] choosing weights on the validation set")
    results["chosen"] = average_or_best(
        trainer, recipe.evaluation.average_last, folder / "final", always_average=recipe.evaluation.always_average
    )
    # ω may be trained: that of the weights which were chosen counts. Saving them completed the configuration.
    model = trainer.accelerator.unwrap_model(trainer.model)
    results |= {"model": model_facts(model), "omega": omega_facts(model)}
    print_once(f"      saved: {folder / 'final'}")
    print_once("[4/5] writing the stock model and checking that it computes the same")
    if trainer.is_world_process_zero():
        results["export"] = export(folder / "final", folder / "standard")
    trainer.accelerator.wait_for_everyone()
    standard = folder / "standard" if (folder / "standard").is_dir() else folder / "final"
    print_once(f"[5/5] test set, beam search with {standard}")
    results |= test_scores(
        standard,
        prepared.data.get("test"),
        recipe.languages[1],
        recipe.evaluation.published_bleu,
        prepared.more_references,
    )
    if trainer.is_world_process_zero():
        write_cards(folder, results)
        write_results(folder, results)
    print_once(f'      results: {folder / "results.json"}\ntranslate: admin-nmt translate {standard} --text "..."')
