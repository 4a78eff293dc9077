"""Limits and defaults of a dataclass's fields: each stands beside its field, and nowhere else."""

import math
import operator
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any

LIMITS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "ge": ("from {} on", operator.ge),
    "gt": ("above {}", operator.gt),
    "le": ("up to {}", operator.le),
    "lt": ("below {}", operator.lt),
}
"""Limits that the metadata of a field may have, in words."""

LENGTH_PENALTY = {"ge": -10, "le": 10}
"""Limits of a length penalty: the power of a length overflows beyond."""

PROFILE_TOKENS = 8000
"""Most target tokens of the batch on which ω is measured, by default."""


def check_limits(values: Any) -> None:
    """Check the numbers among the fields of a dataclass's instance.

    Raises:
        ValueError: one is not finite, or beyond a limit in the metadata of its field; the message names the field.
    """
    for known in fields(values):
        value = getattr(values, known.name)
        if not isinstance(value, int | float):
            continue
        if not math.isfinite(value):
            raise ValueError(f"{known.name} is {value}; give a finite number")
        for name, (words, holds) in LIMITS.items():
            if name in known.metadata and not holds(value, known.metadata[name]):
                raise ValueError(f"{known.name} is {value}; give a number {words.format(known.metadata[name])}")


def default_of(known: Field) -> Any:
    """The default value of a field of a dataclass."""
    return known.default if known.default_factory is MISSING else known.default_factory()
