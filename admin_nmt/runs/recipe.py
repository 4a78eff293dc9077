"""A recipe: one YAML file that says what is trained on which data.

The sections are pydantic models, which check names and types and know the place of what is wrong. What a section hands
on to a class or function of this library has the names, types and defaults of that class or function: they are read
from it, and stand nowhere else.
"""

import re
import reprlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import reduce
from inspect import Parameter, signature
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
import yaml
from huggingface_hub.errors import StrictDataclassError
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Tag,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic import Field as Setting
from pydantic_core import PydanticCustomError

from ..data.cleaning import CleaningOptions
from ..data.corpora import CORPUS_FIELDS, TREATMENT_FIELDS
from ..data.mixing import Treatment
from ..data.parallel_text import load_parallel
from ..data.phrasebook import write_phrasebook
from ..model.configuration_admin import AdminConfig
from ..trainer.arguments import AdminTrainingArguments

# The optimizer of a checkpoint keeps its kind and rate, and its position in an epoch is one in this plan of batches.
RESUMED = ("optimizer", "learning_rate", "max_tokens", "seed", "data_seed")
MOVABLE = ("root", "cache_dir")
BUILTIN = {"phrasebook": write_phrasebook}


class Section(BaseModel):
    """Fields of a recipe, of the types that they are annotated with and no others; it is written as it was given."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    _given: tuple[str, ...] = ()

    @model_validator(mode="wrap")
    @classmethod
    def _remember(cls, values: Any, check: Callable[[Any], Self]) -> Self:
        given = tuple(values) if isinstance(values, dict) else ()
        if unknown := sorted(str(name) for name in given if name not in cls.model_fields):
            known = ", ".join(sorted(cls.model_fields))
            raise PydanticCustomError("unknown_field", "unknown field", {"name": unknown[0], "known": known})
        section = check(values)
        section._given = given
        return section

    def given(self) -> dict[str, Any]:
        """The fields that were given, in their order, without the defaults of the others."""
        return {name: _written(getattr(self, name)) for name in self._given}


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(item) for item in value]
    return value.given() if isinstance(value, Section) else value


def _settings_of(*sources: Any, only: Collection[str] | None = None, without: Collection[str] = ()) -> Any:
    """A section with the fields of dataclasses and the parameters of functions, their types and their defaults."""
    settings: dict[str, Any] = {}
    for source in sources:
        hints = get_type_hints(source, localns={"torch": torch})
        for name, default in _defaults(source):
            if (only is None or name in only) and name not in without:
                settings[name] = (_plain(hints[name]), ... if default is MISSING else Setting(default=default))
    return create_model(f"{sources[0].__name__}Section", __base__=Section, **settings)


def _defaults(source: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(source):
        yield from ((field.name, _default(field)) for field in fields(source) if field.init)
    else:
        for parameter in signature(source).parameters.values():
            yield parameter.name, MISSING if parameter.default is Parameter.empty else parameter.default


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(hint: Any) -> Any:
    """What YAML can hold of a type: the values of an enumeration, lists, numbers that may be whole, text for a path."""
    if get_origin(hint) in (Union, UnionType):
        parts = get_args(hint)
        if any(isinstance(part, type) and issubclass(part, Enum) for part in parts):
            parts = tuple(part for part in parts if part is not str)  # the class turns text into the enumeration
        return reduce(or_, dict.fromkeys(plain for part in parts if (plain := _plain(part)) is not None))
    if get_origin(hint) in (list, Sequence):
        return list[_plain(get_args(hint)[0])]  # type: ignore[misc]
    if isinstance(hint, type) and issubclass(hint, Enum):
        values = tuple(item.value for item in hint)
        choice: Any = Literal[values]
        return Annotated[choice, BeforeValidator(_bare_no)] if "no" in values else choice
    if hint is Path:
        return str
    if hint is float:
        return int | float
    known = hint in (str, int, bool, dict, NoneType, Any) or get_origin(hint) in (dict, Literal, Annotated)
    return hint if known else None


def _bare_no(value: Any) -> Any:
    """YAML reads a bare no as false."""
    return "no" if value is False else value


def _one_or_several(corpus: Any) -> Any:
    """The type of a corpus, or of a list of corpora."""
    kinds = Annotated[corpus, Tag("one")] | Annotated[list[corpus], Tag("several")]
    return Annotated[kinds, Discriminator(lambda given: "several" if isinstance(given, list) else "one")]


_Cleaning: Any = _settings_of(CleaningOptions)
_Corpus: Any = _settings_of(load_parallel, only=CORPUS_FIELDS)
_TrainingCorpus: Any = _settings_of(load_parallel, Treatment, only=(*CORPUS_FIELDS, *TREATMENT_FIELDS))
_Model: Any = _settings_of(AdminConfig)
_Training: Any = _settings_of(AdminTrainingArguments, without=["output_dir"])


class CleaningSection(_Cleaning):
    """Fields of `CleaningOptions`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            CleaningOptions(**self.given())
        except ValueError as error:
            raise ValueError(f"data.cleaning.{error}") from error
        return self


class DataSection(Section):
    """Where the pairs come from; `null` is as good as nothing.

    Args:
        root: folder of all files.
        cache_dir: folder of everything that is made of them.
        max_length: most tokens of a side of a training pair; null for no limit.
        builtin: name of a corpus that is made here, instead of `train`, `valid` and `test`.
        train: a corpus or a list of them, as `admin_nmt.data.corpora.read_corpora` reads them, and so `valid`.
        test: one corpus.
        cleaning: of the training pairs.
    """

    root: str | None = None
    cache_dir: str = "runs/cache"
    max_length: int | None = Setting(default=256, ge=1)
    builtin: str | None = None
    train: _one_or_several(_TrainingCorpus) | None = None  # type: ignore[valid-type]
    valid: _one_or_several(_Corpus) | None = None  # type: ignore[valid-type]
    test: _Corpus | None = None
    cleaning: CleaningSection | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.builtin is not None and self.builtin not in BUILTIN:
            raise ValueError(f"data.builtin: {self.builtin!r} is not one of {', '.join(BUILTIN)}")
        if self.builtin is None and self.train is None:
            raise ValueError(f"data has no train; name its files, or a builtin corpus: {', '.join(BUILTIN)}")
        return self


class TokenizerSection(Section):
    """The vocabularies.

    Args:
        vocab_size: tokens of a new byte-level BPE.
        joint: whether a new one serves both languages.
        path: folder of tokenizers to take instead.
    """

    vocab_size: int = Setting(default=8000, ge=1)
    joint: bool = True
    path: str | None = None


class ModelSection(_Model):
    """Fields of `AdminConfig`, and two more.

    Args:
        attn_implementation: as for `from_pretrained` of transformers.
        from_pretrained: folder or repository of a model to start from.
    """

    attn_implementation: str | None = None
    from_pretrained: str | None = None

    def configuration(self) -> dict[str, Any]:
        """The fields of `AdminConfig` that were given."""
        own = ("attn_implementation", "from_pretrained")
        return {name: value for name, value in self.given().items() if name not in own}

    @model_validator(mode="after")
    def _check(self) -> Self:
        settings = self.configuration()
        if self.from_pretrained is not None:  # its configuration has the other fields
            return self
        for name in {"vocab_size", "decoder_vocab_size"} & set(settings):
            raise ValueError(f"model.{name} is that of the tokenizer; set tokenizer.vocab_size instead")
        try:
            AdminConfig(vocab_size=2**31, **settings)  # as many as no token id can exceed
        except StrictDataclassError as error:  # whose cause is what the configuration says
            raise ValueError(f"model.{error.__cause__ or error}") from error
        return self


class TrainingSection(_Training):
    """Fields of `AdminTrainingArguments`, and one more.

    Args:
        early_stopping_patience: evaluations without a better `metric_for_best_model` after which training ends.
    """

    early_stopping_patience: int | None = Setting(default=None, ge=1)
    fsdp: bool | str | None = AdminTrainingArguments.fsdp  # documented as true or false, annotated as text

    def arguments(self) -> dict[str, Any]:
        """The fields of `AdminTrainingArguments` that were given."""
        return {name: value for name, value in self.given().items() if name != "early_stopping_patience"}


class EvaluationSection(Section):
    """How the finished model is chosen and scored.

    Args:
        average_last: average this many last checkpoints, and take the average if it is better.
        num_beams: beam size of the test set's translation, and of the saved model by default.
        length_penalty: hypothesis scores are divided by length to this power.
    """

    average_last: int = Setting(default=0, ge=0)
    num_beams: int = Setting(default=5, ge=1)
    length_penalty: int | float = 1.0


class CardSection(Section):
    """What only the author knows, for the model card.

    Args:
        license: of the model, as the Hub names it.
        dataset_name: what to call the data.
        dataset_type: name of a dataset on the Hub.
        note: a paragraph.
        example: a source sentence.
        repo_id: where the stock model will be on the Hub.
    """

    license: str | None = None
    dataset_name: str | None = None
    dataset_type: str | None = None
    note: str | None = None
    example: str | None = None
    repo_id: str | None = None


class Recipe(Section):
    """The sections of a recipe; one that is left out has its defaults.

    Args:
        output_dir: folder of the run: checkpoints, logs, results.
        languages: [source, target], for scores and output.
    """

    output_dir: str
    data: DataSection
    tokenizer: TokenizerSection = TokenizerSection()
    model: ModelSection = ModelSection()
    training: TrainingSection = TrainingSection()
    evaluation: EvaluationSection = EvaluationSection()
    languages: list[str] = ["en", "de"]
    card: CardSection = CardSection()

    def as_dict(self) -> dict[str, Any]:
        """All sections, each with the fields that were given, as results.json and the run's recipe.yaml hold them."""
        return {name: _written(getattr(self, name)) for name in type(self).model_fields}

    @field_validator("languages", mode="before")
    @classmethod
    def _check_languages(cls, codes: Any) -> Any:
        if not isinstance(codes, list) or len(codes) != 2 or not all(isinstance(code, str) for code in codes):
            raise ValueError(f"languages holds {codes!r}; write two codes in quotes, source and target")
        return codes

    @model_validator(mode="after")
    def _check_selection(self) -> Self:
        """Whether early stopping and averaging find what they need."""
        training, average_last = self.training, self.evaluation.average_last
        if training.early_stopping_patience is not None and not training.metric_for_best_model:
            raise ValueError("training.early_stopping_patience needs metric_for_best_model, such as eval_bleu")
        needed, limit = average_last + training.load_best_model_at_end, training.save_total_limit
        if limit is not None and limit < needed:
            raise ValueError(
                f"training.save_total_limit {limit} deletes checkpoints that evaluation.average_last "
                f"{average_last} needs; set it to {needed} or more"
            )
        return self


AnySection = TypeVar("AnySection", bound=Section)


class RecipeLoader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number, as everybody but YAML 1.1 expects."""


RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789")
)


def load_recipe(path: str | Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe; `overrides` is a list such as ["--training.max_steps", "100", "--model.variant", "post_ln"].

    Raises:
        ValueError: naming the file or the override that is wrong, the field, and what belongs there.
    """
    values = load_yaml(path)
    overrides = overrides or []
    if len(overrides) % 2:
        raise ValueError(f"{overrides[-1]}: has no value; write --section.field value")
    for name, text in zip(overrides[::2], overrides[1::2], strict=True):
        if not name.startswith("--"):
            raise ValueError(f"{name}: is no override; write --section.field value")
        *sections, last = name[2:].split(".")
        place = values
        for section in sections:
            place = place.setdefault(section, {})
            _check_mapping(place, name)
        place[last] = yaml.load(text, RecipeLoader)
    return checked(Recipe, values, path)


def load_yaml(path: str | Path) -> dict[str, Any]:
    """The fields and values of a file.

    Raises:
        ValueError: naming the file, which holds something else.
    """
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), RecipeLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: is not valid YAML: {error}") from error
    _check_mapping(values, str(path))
    return values


def checked(kind: type[AnySection], values: dict[str, Any], path: str | Path) -> AnySection:
    """A section, such as a whole recipe, of the values of a file.

    Raises:
        ValueError: in one sentence: the file, the first field that is wrong, and what belongs there.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise ValueError(f"{path}: {_sentence(error, values)}") from error


def _check_mapping(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: holds {_shown(value)} where {FIELDS} belong")


FIELDS = "fields with values"
EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": FIELDS,
    "model_type": FIELDS,
    "literal_error": "{expected}",
    "none_required": "null",
    "greater_than_equal": "a number from {ge} on",
    "too_short": "at least {min_length}",
}


def _sentence(error: ValidationError, values: dict[str, Any]) -> str:
    """The first thing that is wrong, in our words; pydantic has an error for each type that a field may have."""
    problems = [(*_place(problem["loc"], values), problem) for problem in error.errors(include_url=False)]
    inside = [problem for problem in problems if problem[0].startswith(problems[0][0])]
    field, given, first = max(inside, key=lambda problem: len(problem[0]))  # an item of a list, rather than the list
    context = first.get("ctx", {})
    if first["type"] == "value_error":
        return str(context["error"])
    if first["type"] == "unknown_field":
        name = f"{field}.{context['name']}" if field else context["name"]
        return f"unknown field {name}; known are {context['known']}"
    types = {problem["type"]: problem for place, _, problem in problems if place == field}
    if first["type"] == "missing":
        lacking = [str(one["loc"][-1]) for place, _, one in problems if (place, one["type"]) == (field, "missing")]
        return f"{field + ' ' if field else ''}lacks {', '.join(sorted(lacking))}"
    if "float_type" in types:
        types.pop("int_type", None)
    expected = [EXPECTED.get(name, one["msg"]).format(**one.get("ctx", {})) for name, one in types.items()]
    verb = "belong" if expected[-1] == FIELDS else "belongs"
    return f"{field} holds {_shown(given)} where {' or '.join(expected)} {verb}"


def _shown(value: Any) -> str:
    """A value as YAML writes it, where that differs from Python."""
    return {"None": "null", "True": "true", "False": "false"}.get(text := reprlib.repr(value), text)


def _place(location: tuple[str | int, ...], values: Any) -> tuple[str, Any]:
    """The name of a field and what it holds, from pydantic's location, in which members of unions have names too."""
    name = ""
    for part in location:
        if isinstance(values, dict) and part in values:
            name, values = f"{name}.{part}" if name else str(part), values[part]
        elif isinstance(values, list) and isinstance(part, int):
            name, values = f"{name}[{part}]", values[part]
    return name, values


def differences(
    earlier: Mapping[str, Any], now: Mapping[str, Any], training: Collection[str]
) -> dict[str, tuple[Any, Any]]:
    """Fields of two recipes that differ in data, tokenizer, model or these fields of training, with both values.

    Args:
        earlier: what `Recipe.as_dict` gave, perhaps of another version of this library.
        now: likewise.
        training: fields of the section `training`.
    """
    differing = {}
    for section in ("data", "tokenizer", "model", "training"):
        known = Recipe.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
        old, new = earlier.get(section) or {}, now.get(section) or {}
        names = training if section == "training" else [name for name in (*old, *new) if name not in MOVABLE]
        for name in names:
            default = known[name].default if name in known else None
            pair = old.get(name, default), new.get(name, default)
            if pair[0] != pair[1]:
                differing[f"{section}.{name}"] = pair
    return differing
