"""Every option of a recipe in one page of tables: name, type, default and meaning.

Names, types and defaults are those of the recipe's sections; meanings come from the docstrings and from the help texts
of `AdminTrainingArguments`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from inspect import getdoc
from typing import Any

from ..data.cleaning import CleaningOptions
from ..data.corpora import TREATMENT, Treatment
from ..data.parallel_text import load_parallel
from ..model.configuration_admin import AdminConfig
from ..system.markdown import table_lines
from ..trainer.arguments import AdminTrainingArguments
from .recipe import (
    CardSection,
    CleaningSection,
    CorpusSection,
    DataSection,
    EvaluationSection,
    ModelSection,
    Recipe,
    TestSection,
    TokenizerSection,
    TrainingCorpusSection,
    TrainingSection,
)

ARGUMENTS_PAGE = "https://huggingface.co/docs/transformers/main_classes/trainer#transformers.Seq2SeqTrainingArguments"
INTRODUCTION = """# Every option of a recipe

A recipe sets an option in its section, as in `training: {max_steps: 20000}`. A command line sets it by its whole name,
as in `admin-nmt train mine.yaml --training.max_steps 20000`. A dash stands for no value. `admin-nmt recipe --options`
prints this page; [the guide](guide/recipes.md#the-fields-of-a-recipe) explains the sections.
"""
TRAINING_NOTE = f"""`AdminTrainingArguments`: what this package adds or changes, then what matters here of
[Seq2SeqTrainingArguments]({ARGUMENTS_PAGE}),
all of whose other fields may be set as well.
"""
CORPUS_NOTE = """The first five are options of `data.valid` and `data.test`, too. `data.train` and `data.valid` may also
hold a list of corpora.
"""
NOT_SET_BY_HAND = {"vocab_size", "decoder_vocab_size", "is_encoder_decoder", "use_cache"}
NOT_SET_BY_HAND |= {"pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id"}
"""Fields of `AdminConfig` that the tokenizer decides, or that are as they are for translation."""
MEANINGS = {
    "max_steps": "Updates of the run; -1: as `num_train_epochs` says.",
    "lr_scheduler_kwargs": "Further settings of the schedule.",
    "fp16": "Mixed precision in float16, with a scaled loss.",
    "activation_checkpointing_kwargs": "Settings of torch's checkpoint; `every_n_layers` spares the others.",
    "torch_compile": "Compile the model before training.",
    "full_determinism": "Only deterministic kernels: the same numbers in every run on one machine, and slower.",
    "logging_strategy": "When the loss is logged.",
    "logging_steps": "Updates between two lines of the log; below 1 a share of all.",
    "logging_first_step": "Also log the first update.",
    "report_to": "Trackers such as `tensorboard`, `wandb` or `mlflow`, one or a list.",
    "run_name": "Name of the run for trackers.",
    "disable_tqdm": "Leave out progress bars.",
    "eval_strategy": "When the validation set is evaluated.",
    "eval_delay": "Updates, or epochs, before the first evaluation.",
    "eval_on_start": "Also evaluate before the first update.",
    "save_strategy": "When a checkpoint is written.",
    "save_only_model": "Save the weights alone; such a run cannot be continued.",
    "load_best_model_at_end": "Take the best checkpoint, not the last; needs evaluations at its checkpoints.",
    "metric_for_best_model": "What the best checkpoint is best in, such as `eval_bleu`; by default the loss.",
    "greater_is_better": "Whether more of that metric is better; by default known from its name.",
    "dataloader_num_workers": "Processes that make batches; 0: the training process does.",
    "ddp_timeout": "Seconds that processes wait for each other.",
    "fsdp": "Shard weights, gradients and optimiser; accelerate's configuration files do it better.",
    "use_cpu": "Train on the CPU even where there is a GPU.",
}
"""Meanings of those fields of `Seq2SeqTrainingArguments` that matter here."""


NAMES = {"integer": "whole number", "number": "number", "boolean": "true, false", "string": "text", "object": "mapping"}
WORDS = {"minimum": "from", "ge": "from", "exclusiveMinimum": "above", "gt": "above", "exclusiveMaximum": "below"}
WORDS |= {"lt": "below"}
"""Limits of a JSON schema; those of a union have pydantic's own names."""
Row = tuple[str, str, str, str]


def option_page() -> str:
    """The whole page in Markdown, each option under its whole name."""
    parts = [INTRODUCTION]
    for title, note, rows in _sections():
        lines = table_lines(("option", "type", "default", "meaning"), rows)
        parts.append("\n".join([f"## {title}", *(["", note.rstrip()] if note else []), "", *lines, ""]))
    return "\n".join(parts)


def meanings(source: Any) -> dict[str, str]:
    """Meanings that a docstring gives of each argument or attribute, by name, in one line."""
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", getdoc(source) or "", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def _sections() -> Iterator[tuple[str, str, list[Row]]]:
    """Title, remark and rows of each table."""
    model = [name for name in ModelSection.model_fields if name not in NOT_SET_BY_HAND]
    helps = {field.name: field.metadata.get("help", "") for field in fields(AdminTrainingArguments)}
    own = {name: helps[name] for name in AdminTrainingArguments.__annotations__}  # what this package adds or changes
    training = own | meanings(TrainingSection) | MEANINGS
    data = [name for name in DataSection.model_fields if name not in ("train", "valid", "test", "cleaning")]
    yield "Run", "", _rows("", Recipe, ["output_dir", "languages"])
    yield "Data", "", _rows("data.", DataSection, data)
    yield (
        "Corpora",
        CORPUS_NOTE,
        [
            *_rows("data.train.", TrainingCorpusSection, CorpusSection.model_fields, meanings(load_parallel)),
            *_rows("data.train.", TrainingCorpusSection, TREATMENT, meanings(Treatment)),
            *_rows("data.test.", TestSection, ["more_references"]),
        ],
    )
    cleaning = _rows("data.cleaning.", CleaningSection, CleaningSection.model_fields, meanings(CleaningOptions))
    yield "Cleaning", "Of training pairs.\n", cleaning
    yield "Tokenizer", "", _rows("tokenizer.", TokenizerSection, TokenizerSection.model_fields)
    yield "Model", "", _rows("model.", ModelSection, model, meanings(AdminConfig) | meanings(ModelSection))
    yield "Training", TRAINING_NOTE, _rows("training.", TrainingSection, training, training)
    yield "Evaluation", "", _rows("evaluation.", EvaluationSection, EvaluationSection.model_fields)
    yield "Model card", "", _rows("card.", CardSection, CardSection.model_fields)


def _rows(prefix: str, section: Any, names: Iterable[str], texts: Mapping[str, str] | None = None) -> list[Row]:
    """A row for each of these fields; `texts` are their meanings, by default those of the section's docstring."""
    schema, texts = section.model_json_schema(), texts or meanings(section)
    properties = schema["properties"]
    rows = []
    for name in names:
        default = "required" if name in schema.get("required", ()) else _value(properties[name]["default"])
        rows.append((f"`{prefix}{name}`", _type(properties[name]), default, _sentence(texts[name])))
    return rows


def _sentence(text: str) -> str:
    """A meaning in the words of YAML, without the links that help pages make of names."""
    text = re.sub(r"\[(`\w+`)\]", r"\1", re.sub(r"\bNone\b", "null", text))
    return text[0].upper() + text[1:] if text[0].isascii() else text


def _value(default: Any) -> str:
    """A default as YAML writes it."""
    if isinstance(default, str):
        return f"`{default}`"
    if isinstance(default, float):
        return f"{default:g}"
    return "–" if default is None else json.dumps(default).replace('"', "")


def _type(schema: Mapping[str, Any]) -> str:
    """Values that may be given, in words, from a field's JSON schema."""
    if "anyOf" in schema:
        kinds = [one for one in schema["anyOf"] if one.get("type") != "null"]
        if any(one.get("type") == "number" for one in kinds):
            kinds = [one for one in kinds if one.get("type") != "integer"]
        return " or ".join(_type(one | _limits(schema)) for one in kinds)
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(f"`{choice}`" for choice in choices)
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}s"
    return NAMES[schema["type"]] + "".join(f" {WORDS[name]} {limit:g}" for name, limit in _limits(schema).items())


def _limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of a number."""
    return {name: schema[name] for name in WORDS if name in schema}
