"""Values that do not fit: one sentence of a pydantic `ValidationError`, and of an unknown field."""

import re
import reprlib
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

MAPPING = "a mapping"
EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": MAPPING,
    "model_type": MAPPING,
    "literal_error": "{expected}",
    "none_required": "null",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "at least {min_length} items",
}
"""Descriptions of what a field takes, by the type of pydantic's error, with the names of its context."""


class FieldError(ValueError):
    """Raised by a section's validator about one field, whose name its text begins with.

    `FieldError("dropout: must lie in [0, 1)")` in the section `model` becomes "model.dropout: must lie in [0, 1)". The
    text of any other ValueError follows the name of the section or field: `ValueError("has no train")` in `data`
    becomes "data has no train".
    """


FEW = 12  # names that a sentence can list


def unknown(name: str, known: Collection[str], place: str = "") -> str:
    """Sentence about a field that does not exist, with the most similar one, or those that there are."""
    section = f"{place}." if place else ""
    if similar := get_close_matches(name, known, 1):
        return f"unknown field {section}{name}; did you mean {section}{similar[0]}?"
    if len(known) <= FEW:
        return f"unknown field {section}{name}; known are {', '.join(sorted(known))}"
    nearest = ", ".join(sorted(get_close_matches(name, known, FEW // 2, cutoff=0)))
    return (
        f"unknown field {section}{name}; among the {len(known)} known are {nearest}; `admin-nmt recipe --options` "
        "lists all"
    )


def sentence(error: ValidationError, values: dict[str, Any]) -> tuple[str, str]:
    """Field ("" for all of them) and sentence of the first error in `values`.

    pydantic has an error for each type that a field may have.
    """
    problems = [(*_place(problem["loc"], values), problem) for problem in error.errors(include_url=False)]
    inside = [problem for problem in problems if problem[0].startswith(problems[0][0])]
    field, given, first = max(inside, key=lambda problem: len(problem[0]))  # an item of a list, rather than the list
    context = first.get("ctx", {})
    if first["type"] == "value_error":
        text = _below(field, context["error"])
        return _field_of(field, context["error"]), text
    if first["type"] == "unknown_field":
        name = f"{field}.{context['name']}" if field else context["name"]
        if context["hint"]:
            return name, f"{name} has no effect; {context['hint']}"
        return name, unknown(context["name"], context["known"], field)
    types = {problem["type"]: problem for place, _, problem in problems if place == field}
    if first["type"] == "missing":
        lacking = [str(one["loc"][-1]) for place, _, one in problems if (place, one["type"]) == (field, "missing")]
        return field, f"{field + ' ' if field else ''}lacks {', '.join(sorted(lacking))}"
    if types.keys() & {"float_type", "finite_number"}:
        types.pop("int_type", None)
    expected = [EXPECTED.get(name, one["msg"]).format(**one.get("ctx", {})) for name, one in types.items()]
    return field, f"{field}{': ' if field else ''}expected {' or '.join(expected)}, got {shown(given)}"


def _field_of(place: str, error: ValueError) -> str:
    """The field that a validator's text begins with, or the section that it is about."""
    name = re.match(r"[\w.]*\w", str(error)) if isinstance(error, FieldError) or not place else None
    return ".".join(filter(None, (place, name and name[0])))


def _below(place: str, error: ValueError) -> str:
    """Text of a validator's error, after the place where it was raised; the whole file has no name."""
    if not place:
        return str(error)
    return f"{place}.{error}" if isinstance(error, FieldError) else f"{place} {error}"


def shown(value: Any) -> str:
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
