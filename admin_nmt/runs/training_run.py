"""A whole run, from top to bottom: recipe, data, model, trainer, training, finished model.

`run_recipe` is the order of it. The data are made by preparation.py; the model and its trainer are built here; what
follows the training is in finishing.py.
"""

import signal
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import EarlyStoppingCallback, set_seed
from transformers.integrations import get_reporting_integration_callbacks

from ..data.tokenization.tokenizer_folder import check_tokenizer, load_tokenizers, tokenizer_digest
from ..hub.run_folder import CURVE, results_or_none, write_results
from ..metrics.languages import has_words
from ..metrics.scores import bleu_of
from ..model.configuration_admin import AdminConfig
from ..model.modeling_admin import AdminForConditionalGeneration
from ..system.errors import refusing_code
from ..system.processes import leave_busy_cores, print_once, start_processes, wait_at_most
from ..trainer.admin_trainer import AdminTrainer
from ..trainer.arguments import AdminTrainingArguments
from ..trainer.callbacks import StopRequestedError
from ..trainer.checkpoints import complete_checkpoints, newest_whole_checkpoint, whole_checkpoints
from ..trainer.divergence import DivergedError
from ..trainer.process_memory import let_segments_grow
from .claim import claim_data, claim_folder
from .finishing import finish, rehearse_finish
from .pictures.curves import plot_curve
from .preparation import Prepared, prepare
from .recipe import Recipe
from .reporting import ReportOmega, ReportSettings, introduce, training_text
from .results import run_facts, training_facts
from .training_table import show_table

STOPPED = 128 + signal.SIGTERM  # the exit code by which shells and schedulers know the signal


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
    bleu_of(recipe.languages[1])  # raises what it lacks before hours of training, not after them
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
    leave_busy_cores()
    trainer = build_trainer(recipe, prepared, args)
    trainer.add_callback(ReportOmega())
    trainer.add_callback(ReportSettings())
    rehearse_finish(trainer, recipe, prepared)
    introduce(trainer, folder)
    table = show_table(trainer)
    try:
        train(trainer, folder)
    except DivergedError as error:
        results = run_facts(recipe, prepared, trainer, training_facts(trainer), trainer.state.log_history, error)
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


def training_arguments(recipe: Recipe) -> AdminTrainingArguments:
    """The section `training`, on the devices of this machine.

    Raises:
        ValueError: fields of it contradict each other, or what it reports to is not installed.
    """
    settings: dict[str, Any] = {"target_language": recipe.languages[1], "use_cpu": not torch.accelerator.is_available()}
    settings["disable_tqdm"] = False  # which transformers takes from the level of its own messages
    try:
        args = AdminTrainingArguments(output_dir=recipe.output_dir, **settings | recipe.training.arguments())
    except ValueError as error:
        raise ValueError(f"{recipe._called}: training: {error}") from error
    try:
        for callback in get_reporting_integration_callbacks(args.report_to):
            callback()
    except RuntimeError as error:  # something is not installed: raised before hours of preparation
        raise ValueError(f"{recipe._called}: training.report_to: {error}") from error
    return args


def build_model(recipe: Recipe, prepared: Prepared) -> AdminForConditionalGeneration:
    """A new model of the recipe's configuration, or the one to start from."""
    settings, start = recipe.model.configuration(), recipe.model.from_pretrained
    attention = recipe.model.attn_implementation
    source, target = prepared.source_tokenizer, prepared.target_tokenizer
    if start is not None:
        with refusing_code(start):
            model = AdminForConditionalGeneration.from_pretrained(start, attn_implementation=attention, **settings)
    else:
        settings.setdefault("share_encoder_decoder_embeddings", source is target)
        config = AdminConfig(vocab_size=len(source), decoder_vocab_size=len(target), **settings)
        model = AdminForConditionalGeneration._from_config(config, attn_implementation=attention)
    check_tokenizer(source, model.config)
    check_tokenizer(target, model.config, target=True)
    if start is not None:
        _check_vocabulary(prepared, Path(start), "remove tokenizer.path, or start from the model of that tokenizer")
    for checkpoint in whole_checkpoints(reversed(complete_checkpoints(recipe.output_dir)))[0]:
        _check_vocabulary(prepared, checkpoint, "restore the training files of that run, or choose another output_dir")
    return model


def build_trainer(recipe: Recipe, prepared: Prepared, args: AdminTrainingArguments) -> AdminTrainer:
    """The trainer of a recipe, model included, from its seed.

    Args:
        args: as [`training_arguments`] gives them.
    """
    patience = recipe.training.early_stopping_patience
    set_seed(args.seed)
    model = build_model(recipe, prepared)
    _check_beams(recipe, args, len(prepared.target_tokenizer))
    return AdminTrainer(
        model,
        args,
        train_dataset=prepared.data["train"],
        eval_dataset=prepared.data.get("valid"),
        processing_class=prepared.source_tokenizer,
        target_tokenizer=prepared.target_tokenizer,
        callbacks=[] if patience is None else [EarlyStoppingCallback(patience)],
    )


def _check_vocabulary(prepared: Prepared, folder: Path, remedy: str) -> None:
    """Check that the data has the ids of the tokenizers, if any, that lie beside a model's weights."""
    if (folder / "tokenizer_config.json").exists():
        tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
        for side, own, other in zip(("source", "target"), tokenizers, load_tokenizers(folder), strict=True):
            if tokenizer_digest(own) != tokenizer_digest(other):
                raise ValueError(f"{folder} was trained with another {side} vocabulary than the data has: {remedy}")


def _check_beams(recipe: Recipe, args: AdminTrainingArguments, vocabulary: int) -> None:
    searches = {"evaluation.num_beams": recipe.evaluation.num_beams}
    if args.eval_strategy != "no" and args.eval_bleu:
        searches["training.generation_num_beams"] = args.generation_num_beams or 1
    for name, beams in searches.items():
        if beams > vocabulary:
            raise ValueError(f"{name} is {beams}, and the vocabulary has {vocabulary} tokens; lower it")


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
