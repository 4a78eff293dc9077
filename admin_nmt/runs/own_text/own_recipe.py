"""A recipe for somebody's own text on a machine: its values, why they are so, and the file that says both."""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import yaml
from accelerate import PartialState

from ...metrics.languages import has_words
from ...model.configuration_admin import AdminConfig
from ...model.sublayers import of_both_stacks
from ...trainer.arguments import AdminTrainingArguments
from ...trainer.memory_prediction import fits, free_memory, largest_shapes, predict_memory, worst_shape
from ...trainer.precision import bfloat16_pays, cpu_attention
from ..yaml_files import set_field
from .own_corpus import POSITIONS, OwnCorpus, cleaning_options
from .sizes import MOST_UPDATES, Row, Shape, row_for

LONGEST = 256  # tokens of a training sentence, the default of data.max_length
FEWEST_TOKENS = 512  # of a batch: below it a GPU or CPU waits more than it computes
FILLED = 0.9  # target tokens in a batch of its budget: 0.87 on 5,000 pairs of Tatoeba, 0.93 on Multi30k
EVALUATIONS = 20  # of a run
SECTIONS = ("data", "tokenizer", "model", "training", "evaluation", "card")
OVERRIDDEN = "given on the command line"
EPOCHS = "training.num_train_epochs"


@dataclass(frozen=True)
class Machine:
    """Where a run is to be trained.

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
    """A recipe's values, the reasons of its fields by their names, and lines that tell the choice."""

    values: dict[str, Any]
    why: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def choose(self, name: str, value: Any, why: str = "") -> None:
        """Set a field such as "training.max_steps", for a reason."""
        set_field(self.values, name, value)
        self.why = {known: text for known, text in self.why.items() if not f"{known}.".startswith(f"{name}.")}
        if why:
            self.why[name] = why


def plan(
    corpus: OwnCorpus, languages: list[str], output_dir: str, machine: Machine, given: Mapping[str, Any] | None = None
) -> Plan:
    """The recipe of a corpus: sizes by its pairs and the machine, updates by its tokens, a batch that fits the memory.

    Args:
        corpus: what is trained on.
        languages: codes of source and target.
        output_dir: folder of the run.
        machine: where it is to be trained.
        given: fields that are not to be chosen, such as "training.max_steps", with their values.
    """
    given = given or {}
    made, row = Plan({"output_dir": output_dir, "languages": languages}), row_for(corpus.training)
    shape: Shape = getattr(row, machine.kind)
    _choose_data(made, corpus, languages)
    made.choose("tokenizer.vocab_size", row.vocabulary, row.vocabulary_why)
    _choose_model(made, shape)
    tokens, memory = _choose_batch(made, shape, row, machine, given)
    updates = _choose_updates(made, corpus, tokens, row, machine, given)
    _choose_training(made, shape, updates, machine, given.get("training.eval_steps", given.get("training.save_steps")))
    measure = _choose_best(made, languages[1])
    for name, value in given.items():
        if name != EPOCHS or _epochs_given(given) is None:  # which the updates come to; a wrong number is refused
            made.choose(name, value, OVERRIDDEN)
    depth, epochs = f"{shape.layers[0]}-{shape.layers[1]}", _epochs(corpus, tokens, row, updates)
    made.told = [
        _told_data(corpus),
        f"vocabulary  {row.vocabulary:,} tokens for both languages: {row.vocabulary_why}",
        f"model       admin, {depth} layers of width {shape.width}: {shape.why}",
        f"training    {updates:,} updates of {tokens:,} tokens, about {epochs:.{epochs < 10:d}f} epochs; then the "
        f"best weights by {measure}, or the average of the last 5",
        f"time        {_time(shape, tokens, updates, machine)}",
        f"memory      {memory}",
    ]
    if given:
        made.told.append(f"instead     {', '.join(f'{name} {value}' for name, value in given.items())}: {OVERRIDDEN}")
    return made


def _told_data(corpus: OwnCorpus) -> str:
    told = f"data        {corpus.read:,} pairs, {corpus.kept:,} after cleaning"
    parts = [f"{size:,} for {split}" for split, size in corpus.split_off.items()]
    if not parts:
        return told
    folder = os.path.dirname(next(iter(corpus.held_out[split]["source"] for split in corpus.split_off)))
    return f"{told}; held out {' and '.join(parts)}, now in {folder}"


def _choose_data(made: Plan, corpus: OwnCorpus, languages: list[str]) -> None:
    made.choose("data.train", corpus.files.fields() | ({"columns": corpus.columns} if corpus.columns else {}))
    for split in ("valid", "test"):
        why = f"{corpus.split_off[split]:,} pairs of the training text" if split in corpus.split_off else ""
        made.choose(f"data.{split}", corpus.held_out[split], why)
    if corpus.cache_dir != "runs/cache":
        made.choose("data.cache_dir", corpus.cache_dir)
    cleaning = cleaning_options(languages)
    why = "training text with a sentence of valid or test is left out"
    spaces = "; words are not counted in a language without spaces" if "max_ratio" in cleaning else ""
    made.choose("data.cleaning", cleaning, why + spaces)
    if corpus.example:
        made.choose("card.example", corpus.example, "for the model card, which also takes license, dataset_name, note")


def _choose_model(made: Plan, shape: Shape) -> None:
    made.choose("model.variant", "admin")
    made.choose("model.omega_rule", "log_n", "as fast as measured ω, or faster (model_cards/multi30k-default-rule)")
    made.choose("model.encoder_layers", shape.layers[0], shape.why)
    made.choose("model.decoder_layers", shape.layers[1])
    made.choose("model.d_model", shape.width)
    for name, size in of_both_stacks(ffn_dim=shape.ffn, attention_heads=shape.heads).items():
        made.choose(f"model.{name}", size)
    made.choose("model.dropout", shape.dropout, "raise it where validation NLL rises while training NLL falls")
    made.choose("model.max_position_embeddings", POSITIONS, "tokens of the longest sentence that it can translate")


def _choose_batch(made: Plan, shape: Shape, row: Row, machine: Machine, given: Mapping[str, Any]) -> tuple[int, str]:
    """Tokens of a batch, as many as the memory holds, accumulated to those of an update; gives these and the memory."""
    wanted = min(shape.max_tokens, max(FEWEST_TOKENS, shape.batch // machine.processes))
    tokens = _count(given, "training.max_tokens", wanted)
    peak = _peak(shape, row, tokens, machine, given)
    while tokens > FEWEST_TOKENS and "training.max_tokens" not in given and not fits(peak, machine.free / 1e9):
        tokens //= 2
        peak = _peak(shape, row, tokens, machine, given)
    accumulated = max(1, shape.batch // (tokens * machine.processes))
    why = f"tokens of a batch on one device; {peak / 1e9:.2f} GB are predicted, {machine.free / 1e9:.0f} are free"
    made.choose("training.max_tokens", tokens, why)
    if accumulated > 1:
        made.choose("training.gradient_accumulation_steps", accumulated, f"an update is {shape.batch:,} tokens")
    told = f"{peak / 1e9:.2f} GB predicted for a batch of {tokens:,} tokens, {machine.free / 1e9:.1f} GB free"
    told = told if fits(peak, machine.free / 1e9) else f"{told}: too little, choose a smaller model"
    return tokens * machine.processes * _count(given, "training.gradient_accumulation_steps", accumulated), told


def _count(given: Mapping[str, Any], name: str, otherwise: int) -> int:
    """A number that the command line gives; a wrong one is refused with the recipe."""
    value = given.get(name)
    return value if isinstance(value, int) and value > 0 else otherwise


def _peak(shape: Shape, row: Row, tokens: int, machine: Machine, given: Mapping[str, Any]) -> int:
    """Predicted bytes of a process; a GPU may recompute activations, as the recipe lets it."""
    sizes = {"encoder_layers": shape.layers[0], "decoder_layers": shape.layers[1], "d_model": shape.width}
    sizes |= of_both_stacks(ffn_dim=shape.ffn, attention_heads=shape.heads)
    sizes = {name: _count(given, f"model.{name}", size) for name, size in sizes.items()}
    vocabulary = _count(given, "tokenizer.vocab_size", row.vocabulary)
    config = AdminConfig(variant="admin", omega_rule="log_n", vocab_size=vocabulary, **sizes)
    settings: dict[str, Any] = {"use_cpu": machine.gpu is None, "report_to": "none", "max_tokens": tokens}
    settings |= {} if machine.gpu is None else {"bf16": machine.bf16, "activation_checkpointing": True}
    args = AdminTrainingArguments("unused", **settings)
    attention = cpu_attention(LONGEST) if machine.gpu is None else None
    shape_of_batch = worst_shape(config, args, largest_shapes(tokens, LONGEST), attention)
    return predict_memory(config, args, shape_of_batch, attention).peak_of(machine.processes)


def _epochs(corpus: OwnCorpus, tokens: int, row: Row, updates: int) -> float:
    """About how many epochs so many updates of so many tokens are, before any tokenizer has counted."""
    return updates * tokens * FILLED / (corpus.training * (corpus.bytes_a_pair / row.bytes_a_token + 1))


def _epochs_given(given: Mapping[str, Any]) -> float | None:
    """How many epochs the command line wants, if it says a number that can be trained."""
    value = given.get(EPOCHS)
    return value if isinstance(value, int | float) and 0 < value < math.inf else None


def _choose_updates(
    made: Plan, corpus: OwnCorpus, tokens: int, row: Row, machine: Machine, given: Mapping[str, Any]
) -> int:
    updates, epochs = given.get("training.max_steps"), _epochs_given(given)
    if isinstance(updates, int) and updates > 0:
        return updates
    if epochs is not None:
        updates = math.ceil(epochs / _epochs(corpus, tokens, row, 1))
        made.choose("training.max_steps", updates, f"about {epochs:g} epochs, {OVERRIDDEN}")
        return updates
    wanted = row.epochs / _epochs(corpus, tokens, row, 1)
    updates = max(row.fewest, min(MOST_UPDATES[machine.kind], wanted))
    updates = math.ceil(updates / 100) * 100
    slow = " (more would take a CPU long)" if wanted > updates and machine.gpu is None else ""
    made.choose(
        "training.max_steps",
        updates,
        f"about {_epochs(corpus, tokens, row, updates):.0f} epochs{slow}, fewer where it stops getting better",
    )
    return updates


def _choose_training(made: Plan, shape: Shape, updates: int, machine: Machine, given: Any) -> None:
    """Evaluations and checkpoints come together, as the choice of the best weights needs both."""
    every = given if isinstance(given, int) and given > 0 else max(updates // EVALUATIONS, min(50, updates))
    made.choose("training.learning_rate", shape.learning_rate)
    made.choose("training.warmup_steps", min(shape.warmup, updates // 5))
    made.choose("training.lr_scheduler_type", "linear", "to 0 at the last update: the best use of a short run")
    if machine.gpu is not None:
        made.choose("training.bf16", machine.bf16)
        made.choose("training.activation_checkpointing", "auto", "only where the GPU would be too small without")
    made.choose("training.logging_steps", 50)
    made.choose("training.eval_strategy", "steps")
    made.choose("training.eval_steps", every, f"{updates // every} evaluations")
    made.choose(
        "training.generation_num_beams", 1, "greedy search while training; the finished model is scored with 5 beams"
    )
    made.choose("training.save_strategy", "steps")
    made.choose("training.save_steps", every)
    made.choose("training.save_total_limit", 6, "five to average, and the best")
    made.choose("training.load_best_model_at_end", True)
    made.choose("evaluation.average_last", 5, "taken where it is better than the best checkpoint")
    made.choose("evaluation.num_beams", 5)


def _choose_best(made: Plan, language: str) -> str:
    """What the best weights are best in; gives its name."""
    name, why = ("BLEU", "") if has_words(language) else ("chrF", f"BLEU needs words, and {language} has no spaces")
    made.choose("training.metric_for_best_model", f"eval_{name.lower()}", why)
    made.choose("training.early_stopping_patience", EVALUATIONS // 2, f"evaluations without a better {name}")
    return name


def _time(shape: Shape, tokens: int, updates: int, machine: Machine) -> str:
    if machine.gpu is not None:
        return f"not known: these settings have not been measured on a GPU ({machine.gpu})"
    if not shape.tokens_per_second:
        return "not known"
    precision = "bfloat16" if bfloat16_pays(shape.width, "eager") else "float32"
    speed = shape.tokens_per_second[precision]
    minutes = math.ceil(updates * tokens * FILLED / speed / 60)
    told = "a minute" if minutes == 1 else f"{minutes} minutes" if minutes < 100 else f"{minutes / 60:.0f} hours"
    return f"about {told} on one core in {precision}, at the {speed:,} target tokens a second of Multi30k's runs"


def recipe_text(made: Plan, command: Sequence[str], path: str) -> str:
    """The recipe as YAML, with a comment behind each field that has a reason."""
    header = [
        f"Written by: admin-nmt {shlex.join(command)}",
        "Change what you like, and train it with another folder for its run:",
        f"  admin-nmt train {shlex.quote(path)} --output_dir runs/another",
    ]
    lines = [*(f"# {' '.join(line.splitlines())}" for line in header), ""]
    lines += [_line(name, made.values[name], made.why.get(name)) for name in ("output_dir", "languages")]
    for section in (*SECTIONS, *sorted(set(made.values) - {*SECTIONS, "output_dir", "languages"})):
        fields = made.values.get(section)
        if not isinstance(fields, Mapping):
            lines += [_line(section, fields, made.why.get(section))] if section in made.values else []
            continue
        lines.append(f"{section}:")
        lines += [f"  {_line(name, value, _reason(made.why, f'{section}.{name}'))}" for name, value in fields.items()]
    return "".join(f"{line}\n" for line in lines)


def _reason(why: Mapping[str, str], name: str) -> str | None:
    """Of a field, of one inside it, or of its section, which the command line may give."""
    inner = (text for known, text in why.items() if known.startswith(f"{name}."))
    return why.get(name) or next(inner, None) or (OVERRIDDEN if why.get(name.split(".")[0]) == OVERRIDDEN else None)


def _line(name: str, value: Any, why: str | None) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    text = text.removesuffix("...\n").strip()
    return f"{name}: {text}" + (f"  # {why}" if why else "")
