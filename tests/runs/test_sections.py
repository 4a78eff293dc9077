"""Sections of dataclasses, and the sentences of what their validators raise."""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Self

import pytest
import torch
from pydantic import ValidationError, model_validator

from admin_nmt.runs.sections import OneOrSeveral, Section, checked, section_of
from admin_nmt.system.messages import FieldError


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


class Bucket(Section):
    handles: int = 1
    lid: bool = True

    @model_validator(mode="after")
    def _check_handles(self) -> Self:
        if self.handles > 2:
            raise FieldError("handles: two hands hold two")
        if not self.handles and self.lid:
            raise ValueError("has no handle, but a lid")
        return self


class Shop(Section):
    buckets: OneOrSeveral[Bucket]
    open: bool = True

    @model_validator(mode="after")
    def _check_hours(self) -> Self:
        if not self.open:
            raise ValueError("come back tomorrow")
        return self


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"buckets": {"handles": 3}}, "buckets.handles: two hands hold two"),
        ({"buckets": [{}, {"handles": 3}]}, "buckets[1].handles: two hands hold two"),
        ({"buckets": [{"handles": 0}]}, "buckets[0] has no handle, but a lid"),
        ({"buckets": {}, "open": False}, "come back tomorrow"),
    ],
)
def test_a_validator_need_not_know_where_its_section_is(values, sentence):
    with pytest.raises(ValueError) as error:
        checked(Shop, values, "shop.yaml")
    assert str(error.value) == f"shop.yaml: {sentence}"
