"""Closed forms for the scale of the skip connection, by the number of layers.

Sources: Liu et al. 2020 and microsoft/admin-torch (`log_n`, `n`); DeepNet, Wang et al. 2022 (DeepNorm's α and β).
"""

import math
from typing import Literal

from .configuration_admin import AdminConfig

Stack = Literal["encoder", "decoder"]
# The sublayers of a layer in the order in which they run: `AdminLayer.sublayers` and whoever has no model reads this.
SUBLAYERS: dict[Stack, tuple[str, ...]] = {
    "encoder": ("self_attn", "ffn"),
    "decoder": ("self_attn", "encoder_attn", "ffn"),
}


def count_layers(config: AdminConfig, stack: Stack) -> int:
    """N of the encoder, M of the decoder."""
    return config.encoder_layers if stack == "encoder" else config.decoder_layers


def count_sublayers(config: AdminConfig, stack: Stack) -> int:
    """n of a stack: two sublayers in an encoder layer, three in a decoder layer."""
    return len(SUBLAYERS[stack]) * count_layers(config, stack)


def sublayer_names(config: AdminConfig) -> list[str]:
    """All sublayers of a model in the order in which they run, under names such as `encoder 0 self_attn`."""
    return [
        f"{stack} {layer} {sublayer}"
        for stack, sublayers in SUBLAYERS.items()
        for layer in range(count_layers(config, stack))
        for sublayer in sublayers
    ]


def omega_keys(config: AdminConfig) -> dict[str, str]:
    """Where the state dict of a translation model holds ω of each sublayer, in the order of [`sublayer_names`]."""
    if not config.has_omega:
        return {}
    keys = {}
    for name in sublayer_names(config):
        stack, layer, sublayer = name.split()
        keys[name] = f"model.{stack}.layers.{layer}.{sublayer}_residual.omega"
    return keys


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
