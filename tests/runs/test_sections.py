"""Sections of dataclasses."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from admin_nmt.runs.sections import section_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Paint:
    name: str
    litres: float = field(default=1.5, metadata={"ge": 0.5, "help": "as much"})
    colours: list[Colour] = field(default_factory=lambda: [Colour.RED])
    precision: str | torch.dtype | None = None
    place: Path = Path()
    made: bool = field(default=False, init=False)


def test_fields_types_and_defaults_are_those_of_the_dataclass():
    section = section_of(Paint, without=["colours"])
    assert {name: one.annotation for name, one in section.model_fields.items()} == {
        "name": str, "litres": int | float, "precision": str | None, "place": str,
    }  # fmt: skip
    assert {name for name, one in section.model_fields.items() if one.is_required()} == {"name"}
    assert section(name="x").litres == 1.5
    assert list(section_of(Paint, only=["litres"]).model_fields) == ["litres"]


def test_a_section_is_written_as_it_was_given():
    paint = section_of(Paint)(colours=["blue"], name="x")
    assert (paint.given(), paint.litres) == ({"colours": ["blue"], "name": "x"}, 1.5)
    with pytest.raises(ValidationError, match="litres"):
        section_of(Paint)(name="x", litres=0.2)
