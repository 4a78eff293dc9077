"""Closed forms for the scale of the skip connection and for that of a new model's weights.

Sources: Liu et al. 2020 and microsoft/admin-torch (`log_n`, `n`); DeepNet, Wang et al. 2022 (DeepNorm's α and β); Zhang
et al. 2019 and bzhangGo/zero (DS-Init); Huang et al. 2020 and layer6ai-labs/T-Fixup; takase/b2t_connection.
"""

import math
from dataclasses import dataclass

from .configuration_admin import AdminConfig
from .sublayers import Stack, count_layers, count_sublayers


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


@dataclass(frozen=True)
class Gains:
    """Xavier gains of the matrices of a layer: of q and k, of v, and of `out`, fc1 and fc2."""

    qk: float
    v: float
    out: float


def xavier_gains(config: AdminConfig, stack: Stack, layer_idx: int) -> Gains:
    """The gains with which a new model draws the matrices of layer `layer_idx`, counted from 0.

    Fairseq draws q, k and v as one matrix of three times the height, which is a gain of 1/√2 for each.
    """
    if config.variant == "deepnorm":
        beta = deepnorm_beta(config, stack)
        return Gains(1.0, beta, beta)
    if config.variant == "t_fixup":
        scale = t_fixup_scale(config, stack)
        return Gains(2**-0.5, scale, scale)
    scale = depth_scale(config, stack, layer_idx)
    return Gains(2**-0.5 * scale, 2**-0.5 * scale, scale)


def t_fixup_scale(config: AdminConfig, stack: Stack) -> float:
    """Gain of v, out, fc1 and fc2 in T-Fixup: 0.67 N^{−1/4} in the encoder, (9M)^{−1/4} in the decoder.

    Huang et al. 2020. The released code scales the same matrices, and leaves the biases of q, k and v as PyTorch draws
    them, where ours are 0.
    """
    return 0.67 * config.encoder_layers ** (-1 / 4) if stack == "encoder" else (9 * config.decoder_layers) ** (-1 / 4)


def embedding_gain(config: AdminConfig, layers: int) -> float:
    """Gain of the embeddings of a stack of `layers` layers: (9N)^{−1/4} with T-Fixup, otherwise 1.

    Embeddings that both stacks share have that of the encoder, as in T-Fixup's released code; the paper has one N.
    """
    return (9 * layers) ** (-1 / 4) if config.variant == "t_fixup" else 1.0


def depth_scale(config: AdminConfig, stack: Stack, layer_idx: int) -> float:
    """By what a layer's weights are smaller than Xavier's: 1/√l in layer l of DS-Init, Zhang et al. 2019.

    Its released code divides the variance by √l, not the standard deviation, so that it has l^{−1/4}. The released code
    of B2T scales all matrices of a layer by 1/√N, besides its connection. `released_init` chooses what the code does.
    """
    layer = layer_idx + 1
    if config.variant == "ds_init":
        return layer ** (-1 / 4) if config.released_init else layer ** (-1 / 2)
    return count_layers(config, stack) ** (-1 / 2) if config.released_init else 1.0
