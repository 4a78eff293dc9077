"""Closed forms for the scale of the skip connection: `log_n` and `n` by a stack's sublayers, DeepNorm's by layers.

Sources: Liu et al. 2020 and microsoft/admin-torch (`log_n`, `n`); DeepNet, Wang et al. 2022 (DeepNorm's α and β).
"""

import math

from .configuration_admin import AdminConfig
from .sublayers import Stack, count_sublayers


def log_n(sublayers: int) -> float:
    """ω with ω² = (n+1)/ln(n+1) − 1, for which the output change grows as O(log n)."""
    return math.sqrt((sublayers + 1) / math.log(sublayers + 1) - 1)


def deepnorm_alpha(config: AdminConfig, stack: Stack) -> float:
    """α of DeepNorm: 0.81(N⁴M)^{1/16} in an encoder of N layers, (3M)^{1/4} in a decoder of M layers."""
    if stack == "encoder":
        return 0.81 * (config.encoder_layers**4 * config.decoder_layers) ** (1 / 16)
    return (3 * config.decoder_layers) ** (1 / 4)


def deepnorm_beta(config: AdminConfig, stack: Stack) -> float:
    """β of DeepNorm, the gain of v, out, fc1 and fc2: 0.87(N⁴M)^{−1/16} and (12M)^{−1/4}."""
    if stack == "encoder":
        return 0.87 * (config.encoder_layers**4 * config.decoder_layers) ** (-1 / 16)
    return (12 * config.decoder_layers) ** (-1 / 4)


def initial_omega(config: AdminConfig, stack: Stack) -> float:
    """ω of every sublayer of a new model; with a `profile` rule the value that holds until profiling."""
    if config.variant == "deepnorm":
        return deepnorm_alpha(config, stack)
    sublayers = count_sublayers(config, stack)
    return math.sqrt(sublayers) if config.omega_rule == "n" else log_n(sublayers)
