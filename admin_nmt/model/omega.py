"""ω of ADMIN in a new model: closed forms (`log_n`, `n`) of microsoft/admin-torch, after Liu, Liu et al. 2020."""

import math
from collections.abc import Callable

from .configuration_admin import AdminConfig
from .sublayers import Stack, count_sublayers


def log_n(sublayers: int) -> float:
    """ω with ω² = (n+1)/ln(n+1) − 1, for which the output change grows as O(log n)."""
    return math.sqrt((sublayers + 1) / math.log(sublayers + 1) - 1)


CLOSED_FORMS: dict[str, Callable[[int], float]] = {"log_n": log_n, "n": math.sqrt}
"""ω for a stack of n sublayers, by `omega_rule`."""


def initial_omega(config: AdminConfig, stack: Stack) -> float:
    """ω of every sublayer of a new model; with a `profile` rule the value that holds until profiling."""
    return CLOSED_FORMS.get(str(config.omega_rule), log_n)(count_sublayers(config, stack))
