"""Quantities on the x axis of a learning curve: updates, target tokens, or hours."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Literal

import numpy as np

By = Literal["updates", "tokens", "hours"]
History = Sequence[Mapping[str, Any]]
LABELS: dict[By, str] = {
    "updates": "updates",
    "tokens": "millions of target tokens",
    "hours": "hours of training, at the run's median speed",
}


def has_speeds(history: History) -> bool:
    """Tell whether the target tokens were logged, and how fast they came."""
    return any(row.get("target_tokens") and row.get("target_tokens_per_second") for row in history)


def positions(history: History, by: By) -> Callable[[float], float]:
    """Place of an update of this run on the x axis.

    Hours are the target tokens up to the update by the run's median speed: what else the machine did for a while, and
    the time of evaluations, do not count.

    Raises:
        ValueError: the history has no target tokens or speeds, as those of early versions.
    """
    if by == "updates":
        return float
    if not has_speeds(history):
        raise ValueError(f"the run logged no target tokens and speeds, so its curve cannot be drawn by {by}")
    rows = [row for row in history if row.get("target_tokens") and row.get("target_tokens_per_second")]
    updates = [0, *(row["step"] for row in rows)]
    tokens = np.cumsum([0, *(row["target_tokens"] for row in rows)])
    unit = 1e6 if by == "tokens" else 3600 * median(row["target_tokens_per_second"] for row in rows)
    return lambda update: float(np.interp(update, updates, tokens)) / unit
