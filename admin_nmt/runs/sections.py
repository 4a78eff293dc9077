"""Sections of a YAML file as pydantic models, whose fields may be those of dataclasses.

pydantic alone does names, types, limits and places of errors: it is a requirement of the Hub's client already, its
models are plain classes for mypy, and what is wrong comes with the path of its field, from which `system/messages.py`
makes one sentence. jsonargparse would also read YAML and dotted options, but it builds the dataclasses (and with
`TrainingArguments` a device and a process group) while it parses, and has no room for our sentences.

What a section hands on to a dataclass has the names, types, limits and defaults of that class:
`section_of` reads them from it, and they stand nowhere else.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from functools import reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import pydantic
import torch
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Tag,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ..system.limits import LIMITS, default_of
from ..system.messages import sentence


class Section(BaseModel):
    """Fields of a file, of the types that they are annotated with and no others; it is written as it was given.

    Attributes:
        without_effect: names that one may expect among the fields, each with what to do instead.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=())
    without_effect: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_fields(cls, values: Any) -> Any:
        given = values if isinstance(values, dict) else {}
        if unknown := sorted(str(name) for name in given if name not in cls.model_fields):
            context = {"name": unknown[0], "known": [*cls.model_fields], "hint": cls.without_effect.get(unknown[0])}
            raise PydanticCustomError("unknown_field", "unknown field", context)
        return values

    def given(self) -> dict[str, Any]:
        """The fields that were given, without the defaults of the others."""
        return self.model_dump(exclude_unset=True)


AnySection = TypeVar("AnySection", bound=Section)


def checked(
    kind: type[AnySection], values: dict[str, Any], path: str | Path, overrides: Collection[str] = ()
) -> AnySection:
    """A section, such as a whole recipe, of the values of a file.

    Args:
        path: what errors call the file.
        overrides: names of the fields whose values are not the file's, but those of options.

    Raises:
        ValueError: in one sentence: the file or the option, the first field that is wrong, and what belongs there.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        field, text = sentence(error, values)
        options = [name for name in overrides if f"{field}.".startswith((f"{name}.", f"{name}["))]
        if options and text.startswith(options[-1]):
            raise ValueError(f"--{text}") from error
        raise ValueError(f"{f'--{options[-1]}' if options else path}: {text}") from error


def section_of(source: Any, *, only: Collection[str] | None = None, without: Collection[str] = ()) -> Any:
    """A class of sections with the fields of a dataclass, their types and defaults.

    Args:
        source: the dataclass; its fields' `metadata` may hold limits (`ge`, `gt`, `le`, `lt`; null is within any).
        only: names to take; None for all.
        without: names to leave out.
    """
    taken: dict[str, Any] = {}
    hints = get_type_hints(source, localns={"torch": torch})  # transformers imports it for type checkers alone
    for field in fields(source):
        if field.init and (only is None or field.name in only) and field.name not in without:
            limits: dict[str, Any] = {name: limit for name, limit in field.metadata.items() if name in LIMITS}
            kind: Any = Annotated[_yaml_type(hints[field.name]), pydantic.Field(**limits)]
            default = default_of(field)
            taken[field.name] = (kind, ... if default is MISSING else pydantic.Field(default=default))
    return create_model(f"{source.__name__}Section", __base__=Section, **taken)


OneOrSeveral = Annotated[
    Annotated[AnySection, Tag("one")] | Annotated[list[AnySection], Tag("several")],
    Discriminator(lambda value: "several" if isinstance(value, list) else "one"),
]
"""A section, or a list of them; an error names the one that is wrong."""


def _yaml_type(hint: Any) -> Any:
    """Part of a type that YAML can hold: values of an enumeration, lists, numbers that may be whole, text for a path.

    None where YAML can hold nothing of it, such as torch.dtype: a union goes without that member.
    """
    if get_origin(hint) in (Union, UnionType):
        parts = get_args(hint)
        if any(isinstance(part, type) and issubclass(part, Enum) for part in parts):
            parts = tuple(part for part in parts if part is not str)  # the class turns text into the enumeration
        return reduce(or_, dict.fromkeys(kind for part in parts if (kind := _yaml_type(part)) is not None))
    if get_origin(hint) in (list, Sequence):
        return list[_yaml_type(get_args(hint)[0])]  # type: ignore[misc]
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
