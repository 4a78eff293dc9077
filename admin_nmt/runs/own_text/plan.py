"""A recipe for somebody's own text on a machine: its values, and why they are so."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import PartialState

from ...metrics.languages import has_words
from ...model.configuration_admin import AdminConfig
from ...model.sublayers import of_both_stacks
from ...trainer.arguments import AdminTrainingArguments
from ...trainer.memory_prediction import fits, free_memory, largest_shapes, predict_memory, worst_shape
from ...trainer.precision_and_attention import cpu_attention
from ..recipe import (
    CardSection,
    DataSection,
    EvaluationSection,
    ModelSection,
    Recipe,
    TokenizerSection,
    TrainingSection,
)
from ..sections import checked
from ..yaml_files import set_field
from .sizes import MOST_UPDATES, Row, Shape, row_for
from .summary import LONGEST_TRANSLATED, CorpusSummary

FEWEST_TOKENS = 512  # of a batch: below it a GPU or CPU waits more than it computes
FILLED = 0.9  # target tokens in a batch of its budget: 0.87 on 5,000 pairs of Tatoeba, 0.93 on Multi30k
EVALUATIONS = 20  # of a run
OVERRIDDEN = "given on the command line"


@dataclass(frozen=True)
class Machine:
    """Machine on which a run is to be trained.

    Args:
        gpu: the name of the GPU, None where there is none.
        free: bytes that a process may take.
        processes: that train together.
        bf16: whether the GPU computes in it.
    """

    gpu: str | None
    free: int
    processes: int
    bf16: bool

    @property
    def kind(self) -> str:
        return "cpu" if self.gpu is None else "gpu"


def this_machine() -> Machine:
    """The device of this process, as its run will use it."""
    device, processes = PartialState().device, PartialState().num_processes
    if device.type != "cuda":
        return Machine(None, free_memory(torch.device("cpu")), processes, False)
    name = torch.cuda.get_device_name(device)
    return Machine(name, free_memory(device), processes, torch.cuda.is_bf16_supported(including_emulation=False))


@dataclass
class Plan:
    """The fields of a recipe as they are written, with those of the command line, and the reasons.

    Args:
        values: of all fields that are written, by section.
        why: reasons of fields by their names, such as "training.max_steps".
        lines: what is printed about the choice.
    """

    values: dict[str, Any]
    why: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


def plan(
    corpus: CorpusSummary,
    data: DataSection,
    languages: list[str],
    output_dir: str,
    machine: Machine,
    fixed: Mapping[str, Any] | None = None,
) -> Plan:
    """The recipe of a corpus: sizes by its pairs and the machine, updates by its tokens, a batch that fits the memory.

    Args:
        corpus: what is trained on.
        data: its files, cache and cleaning.
        languages: codes of source and target.
        output_dir: folder of the run.
        machine: where it is to be trained.
        fixed: fields that are not to be chosen, such as "training.max_steps", with their values.

    Raises:
        ValueError: naming the field of the command line that is wrong.
    """
    fixed, row = fixed or {}, row_for(corpus.training)
    shape: Shape = getattr(row, machine.kind)
    recipe = Recipe(
        output_dir=output_dir,
        languages=languages,
        data=DataSection(**data.given() | corpus.held_out),
        tokenizer=TokenizerSection(vocab_size=row.vocabulary),
        model=_model(shape),
        training=_training(shape, machine, languages[1]),
        evaluation=EvaluationSection(average_last=5, num_beams=5),
        card=CardSection(example=corpus.example) if corpus.example else CardSection(),
    )
    values = recipe.as_dict()
    for name, value in fixed.items():
        set_field(values, name, value)
    recipe = checked(Recipe, values, "the recipe", fixed)
    batch = _batch(recipe, shape, machine)
    epochs_an_update = _epochs_an_update(corpus, batch.of_update(machine), row)
    updates, why_updates = _updates(recipe, epochs_an_update, row, machine)
    values["training"] = _counts(recipe, shape, batch, updates) | values["training"]
    recipe = checked(Recipe, values, "the recipe", fixed)
    why = _reasons(recipe, corpus, shape, row, machine, batch, why_updates)
    for name in fixed:
        why = {known: text for known, text in why.items() if not f"{known}.".startswith(f"{name}.")}
        why[name] = OVERRIDDEN
    epochs = updates * epochs_an_update
    lines = [
        _data_line(corpus),
        f"training    {updates:,} updates of {batch.of_update(machine):,} tokens, about {epochs:.{epochs < 10:d}f} "
        f"epochs; then {_finished(recipe)}",
        f"memory      {batch.line(machine)}",
    ]
    return Plan({name: section for name, section in recipe.as_dict().items() if section}, why, lines)


def _model(shape: Shape) -> ModelSection:
    sizes: dict[str, Any] = of_both_stacks(ffn_dim=shape.ffn, attention_heads=shape.heads)
    return ModelSection(
        variant="admin",
        omega_rule="log_n",
        encoder_layers=shape.layers[0],
        decoder_layers=shape.layers[1],
        d_model=shape.width,
        dropout=shape.dropout,
        max_position_embeddings=LONGEST_TRANSLATED,
        **sizes,
    )


def _training(shape: Shape, machine: Machine, target: str) -> TrainingSection:
    """Settings that depend on no others; evaluations and checkpoints come together, to choose the best weights."""
    of_gpu: dict[str, Any] = {"bf16": machine.bf16, "activation_checkpointing": "auto"}
    return TrainingSection(
        learning_rate=shape.learning_rate,
        lr_scheduler_type="linear",
        logging_steps=50,
        eval_strategy="steps",
        generation_num_beams=1,
        save_strategy="steps",
        load_best_model_at_end=True,
        metric_for_best_model="eval_bleu" if has_words(target) else "eval_chrf",
        early_stopping_patience=EVALUATIONS // 2,
        **{} if machine.gpu is None else of_gpu,
    )


def _counts(recipe: Recipe, shape: Shape, batch: "Batch", updates: int) -> dict[str, Any]:
    """Fields of `training` that follow from batch and updates, and from those that were given."""
    given = recipe.training.given()
    every = given.get("eval_steps", given.get("save_steps", max(updates // EVALUATIONS, min(50, updates))))
    accumulated = {"gradient_accumulation_steps": batch.accumulated} if batch.accumulated > 1 else {}
    return {
        "max_tokens": batch.tokens,
        "max_steps": updates,
        "warmup_steps": min(shape.warmup, updates // 5),
        "eval_steps": every,
        "save_steps": every,
        "save_total_limit": max(recipe.evaluation.average_last, 1) + 1,
    } | accumulated


def _reasons(
    recipe: Recipe, corpus: CorpusSummary, shape: Shape, row: Row, machine: Machine, batch: "Batch", updates: str
) -> dict[str, str]:
    """The reasons of the fields that have one, by the values that the recipe has in the end."""
    training, cleaning, averaged = recipe.training, recipe.data.cleaning, recipe.evaluation.average_last
    score, beams = _score(recipe), recipe.evaluation.num_beams
    reasons = {f"data.{split}": f"{size:,} pairs of the training text" for split, size in corpus.split_off.items()}
    reasons |= {
        "tokenizer.vocab_size": row.vocabulary_why,
        "model.omega_rule": "as fast as measured ω, or faster (model_cards/multi30k-default-rule)",
        "model.encoder_layers": shape.why,
        "model.dropout": "raise it where validation NLL rises while training NLL falls",
        "model.max_position_embeddings": "tokens of the longest sentence that it can translate",
        "training.max_tokens": f"tokens of a batch on one device; {batch.peak / 1e9:.2f} GB are predicted, "
        f"{machine.free / 1e9:.0f} are free",
        "training.gradient_accumulation_steps": f"an update is {batch.of_update(machine):,} tokens",
        "training.max_steps": updates,
        "training.lr_scheduler_type": "to 0 at the last update: the best use of a short run",
        "training.activation_checkpointing": "only where the GPU would be too small without",
        "training.generation_num_beams": f"greedy search while training; the finished model is scored with {beams} "
        f"beam{'' if beams == 1 else 's'}",
        "training.save_total_limit": f"{averaged} to average, and the best" if averaged > 1 else "last and best",
        "training.early_stopping_patience": f"evaluations without a better {score}",
        "evaluation.average_last": "taken whatever it scores"
        if recipe.evaluation.always_average
        else f"taken where it is better than the {'best' if training.load_best_model_at_end else 'last'} checkpoint",
        "card.example": "for the model card, which also takes license, dataset_name, note",
    }
    if cleaning is not None and cleaning.drop_held_out == "either":
        reasons["data.cleaning"] = "training text with a sentence of valid or test is left out"
        if cleaning.max_ratio is None:
            reasons["data.cleaning"] += "; words are not counted in a language without spaces"
    if training.eval_strategy == "steps" and training.eval_steps and training.eval_steps >= 1:
        reasons["training.eval_steps"] = f"{training.max_steps // int(training.eval_steps)} evaluations"
    if not has_words(recipe.languages[1]):
        reasons["training.metric_for_best_model"] = f"BLEU needs words, and {recipe.languages[1]} has no spaces"
    return reasons


def _score(recipe: Recipe) -> str:
    """The score that chooses the best weights, as one writes it."""
    metric = str(recipe.training.metric_for_best_model).removeprefix("eval_")
    return {"bleu": "BLEU", "chrf": "chrF", "loss": "validation NLL"}.get(metric, metric)


def _finished(recipe: Recipe) -> str:
    """The weights that the finished model has, as `average_or_best` chooses them."""
    trained = f"the best weights by {_score(recipe)}" if recipe.training.load_best_model_at_end else "the last weights"
    if recipe.evaluation.average_last < 2:
        return trained
    average = f"the average of the last {recipe.evaluation.average_last}"
    return average if recipe.evaluation.always_average else f"{trained}, or {average}"


def _data_line(corpus: CorpusSummary) -> str:
    text = f"data        {corpus.read:,} pairs, {corpus.kept:,} after cleaning"
    parts = [f"{size:,} for {split}" for split, size in corpus.split_off.items()]
    if not parts:
        return text
    folder = os.path.dirname(next(iter(corpus.held_out[split]["source"] for split in corpus.split_off)))
    return f"{text}; held out {' and '.join(parts)}, now in {folder}"


@dataclass(frozen=True)
class Batch:
    """Tokens of a batch on one device, batches of an update, and predicted bytes of a process."""

    tokens: int
    accumulated: int
    peak: int

    def of_update(self, machine: Machine) -> int:
        """Tokens of an update, at most."""
        return self.tokens * self.accumulated * machine.processes

    def line(self, machine: Machine) -> str:
        """The memory that it takes."""
        free = machine.free / 1e9
        text = f"{self.peak / 1e9:.2f} GB predicted for a batch of {self.tokens:,} tokens, {free:.1f} GB free"
        return text if fits(self.peak, free) else f"{text}: too little, choose a smaller model"


def _batch(recipe: Recipe, shape: Shape, machine: Machine) -> Batch:
    """As many tokens as the memory holds, accumulated to those of an update."""
    given = recipe.training.given()
    tokens = given.get("max_tokens", min(shape.max_tokens, max(FEWEST_TOKENS, shape.batch // machine.processes)))
    peak = _peak(recipe, tokens, machine)
    while tokens > FEWEST_TOKENS and "max_tokens" not in given and not fits(peak, machine.free / 1e9):
        tokens //= 2
        peak = _peak(recipe, tokens, machine)
    accumulated = given.get("gradient_accumulation_steps", max(1, shape.batch // (tokens * machine.processes)))
    return Batch(tokens, accumulated, peak)


def _peak(recipe: Recipe, tokens: int, machine: Machine) -> int:
    """Predicted bytes of a process; a GPU may recompute activations, as the recipe lets it."""
    config = AdminConfig(vocab_size=recipe.tokenizer.expected, **recipe.model.configuration())
    longest = min(recipe.data.max_length or config.max_position_embeddings, config.max_position_embeddings)
    settings: dict[str, Any] = {"use_cpu": machine.gpu is None, "report_to": "none", "max_tokens": tokens}
    settings |= {} if machine.gpu is None else {"bf16": machine.bf16, "activation_checkpointing": True}
    args = AdminTrainingArguments("unused", **settings)
    attention = cpu_attention(longest) if machine.gpu is None else None
    shape_of_batch = worst_shape(config, args, largest_shapes(tokens, longest), attention)
    return predict_memory(config, args, shape_of_batch, attention).peak_of(machine.processes)


def _epochs_an_update(corpus: CorpusSummary, tokens: int, row: Row) -> float:
    """About what part of an epoch an update of so many tokens is, before any tokenizer has counted."""
    return tokens * FILLED / (corpus.training * (corpus.bytes_a_pair / row.bytes_a_token + 1))


def _updates(recipe: Recipe, epochs_an_update: float, row: Row, machine: Machine) -> tuple[int, str]:
    """Updates of the run, and why so many."""
    given = recipe.training.given().get("max_steps")
    if given == -1:
        raise ValueError("--training.max_steps -1: a run on your own text has a length; give at least 1 update")
    if given is not None:
        return given, OVERRIDDEN
    wanted = row.epochs / epochs_an_update
    updates = math.ceil(max(row.fewest, min(MOST_UPDATES[machine.kind], wanted)) / 100) * 100
    slow = " (more would take a CPU long)" if wanted > updates and machine.gpu is None else ""
    return updates, f"about {updates * epochs_an_update:.0f} epochs{slow}, fewer where it stops getting better"
