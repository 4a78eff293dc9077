"""ω of ADMIN in a new model: closed forms of Liu et al. 2020 and microsoft/admin-torch (`log_n`, `n`)."""

import math

from .configuration_admin import AdminConfig
from .sublayers import Stack, count_sublayers


def log_n(sublayers: int) -> float:
    """ω with ω² = (n+1)/ln(n+1) − 1, for which the output change grows as O(log n)."""
    return math.sqrt((sublayers + 1) / math.log(sublayers + 1) - 1)


def initial_omega(config: AdminConfig, stack: Stack) -> float:
    """ω of every sublayer of a new model; with a `profile` rule the value that holds until profiling."""
    sublayers = count_sublayers(config, stack)
    return math.sqrt(sublayers) if config.omega_rule == "n" else log_n(sublayers)
