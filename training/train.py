"""Train a model from a recipe, choose its best weights, fold them into a stock model and score it on the test set.

    python training/train.py training/recipes/phrasebook.yaml
    python training/train.py training/recipes/multi30k-en-de-18-6.yaml --training.max_steps 100 --output_dir runs/try
    accelerate launch --config_file training/accelerate/ddp.yaml --num_processes 2 training/train.py RECIPE.yaml

A run that was interrupted goes on from its last checkpoint when the same command is given again.
"""

import sys
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from admin_nmt import AdminForConditionalGeneration, AdminTrainer
from admin_nmt.distributed import say, start_processes
from admin_nmt.figures.curves import plot_curve
from admin_nmt.metrics.scores import check_language
from admin_nmt.runs.building import build_trainer, training_arguments
from admin_nmt.runs.claim import claim_folder
from admin_nmt.runs.finishing import average_or_best, export, set_search, test_scores, write_cards
from admin_nmt.runs.preparation import prepare
from admin_nmt.runs.recipe import Recipe, load_recipe
from admin_nmt.runs.results import divergence_facts, omega_facts, read_results, run_facts, write_results
from admin_nmt.trainer.checkpoints import complete_checkpoints, settle_best_checkpoint
from admin_nmt.trainer.divergence import DivergedError
from cli import run


class ReportOmega(TrainerCallback):
    """Says which ω the run starts with, measured or not."""

    def on_train_begin(self, *args: Any, model: AdminForConditionalGeneration, **kwargs: Any) -> None:
        facts = omega_facts(model)
        for stack in ("encoder", "decoder") if facts else ():
            omega = [f"{mean:.2f}" for mean in facts[stack]]
            shown = " ".join(omega if len(omega) <= 12 else [*omega[:6], "…", *omega[-6:]])
            say(f"      ω ({facts['origin']}), {stack}: {shown}")


def train(trainer: AdminTrainer, recipe: Recipe) -> None:
    """Train to the end, from the last checkpoint if there is one; the curve is drawn even if the run stops early."""
    folder = Path(recipe.output_dir)
    checkpoints = complete_checkpoints(folder)
    if checkpoints:
        say(f"      going on from {checkpoints[-1]}")
        if trainer.is_world_process_zero():
            settle_best_checkpoint(checkpoints[-1])
        trainer.accelerator.wait_for_everyone()
    try:
        trainer.train(resume_from_checkpoint=str(checkpoints[-1]) if checkpoints else None)
    finally:
        if trainer.is_world_process_zero():
            plot_curve(trainer.state.log_history, folder / "curve.png")


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    recipe = load_recipe(sys.argv[1], sys.argv[2:])
    folder = Path(recipe.output_dir)
    if (read_results(folder) or {}).get("status") == "finished":
        sys.exit(
            f"{folder} holds a finished run: choose another folder with --output_dir; to train this one further, "
            "delete its results.json and raise training.max_steps"
        )
    check_language(recipe.languages[1])  # before hours of training, not after them
    start_processes()
    claim_folder(recipe)
    training_arguments(recipe)  # which may refuse them, before hours of preparation
    data = recipe.data.given()
    say(f"[1/5] data: {data.get('builtin', data.get('train'))}")
    prepared = prepare(recipe)
    trainer = build_trainer(recipe, prepared)
    trainer.add_callback(ReportOmega())
    config = trainer.model.config
    size = sum(p.numel() for p in trainer.model.parameters()) / 1e6
    depth = f"{config.encoder_layers}-{config.decoder_layers}"
    where = f" on {trainer.args.world_size} processes" if trainer.args.world_size > 1 else ""
    say(f"[2/5] training{where}: {config.variant}, {depth} layers, {size:.1f}M parameters, to {folder}")
    try:
        train(trainer, recipe)
    except DivergedError as error:
        results = divergence_facts(error) | run_facts(recipe, prepared, trainer)
        if trainer.is_world_process_zero():
            write_results(folder, results)
        raise
    results = {"status": "finished", "diverged": None} | run_facts(recipe, prepared, trainer)
    say(f"      {results['training']['minutes']:.1f} minutes; checkpoints: {folder}, curve: {folder / 'curve.png'}")
    results["search"] = set_search(trainer, recipe)
    say("[3/5] choosing weights on the validation set")
    results["chosen"] = average_or_best(trainer, recipe.evaluation.average_last, folder / "final")
    say(f"      {results['chosen']['kind']}: {folder / 'final'}")
    say("[4/5] folding ω into a stock model and checking that it computes the same")
    if trainer.is_world_process_zero():
        results["export"] = export(folder / "final", folder / "standard")
    trainer.accelerator.wait_for_everyone()
    standard = folder / "standard" if (folder / "standard").is_dir() else folder / "final"
    say(f"[5/5] test set, beam search with {standard}")
    results |= test_scores(standard, prepared.data.get("test"), recipe.languages[1])
    if trainer.is_world_process_zero():
        write_results(folder, results)
        write_cards(folder)
    say(f'      results: {folder / "results.json"}\ntranslate: admin-nmt translate {standard} --text "..."')


if __name__ == "__main__":
    run(main)
