"""The parts of a stack that `config.variant` names: the papers' own, or in their place those of a rival."""

from collections.abc import Callable

from torch import nn

from .configuration_admin import RIVALS, TRANSPARENT, AdminConfig
from .dlcl import History, NoHistory, PostNormHistory, PreNormHistory
from .layers import AdminDecoderLayer, AdminEncoderLayer, AdminLayer
from .rivals import (
    PartialPostNormHistory,
    PartialPreNormHistory,
    TransparentAttention,
    rival_layer,
    t_fixup_embedding_gain,
)
from .sublayers import Stack, count_layers

LAYERS: dict[Stack, Callable[..., AdminLayer]] = {"encoder": AdminEncoderLayer, "decoder": AdminDecoderLayer}


def new_layer(config: AdminConfig, stack: Stack, layer_idx: int) -> AdminLayer:
    """Build layer `layer_idx` of a stack, counted from 0."""
    if config.variant in RIVALS:
        return rival_layer(config, stack, layer_idx, LAYERS[stack])
    return LAYERS[stack](config, layer_idx)


def new_history(config: AdminConfig, stack: Stack) -> History:
    """Build what joins the layers of a stack: nothing, DLCL, DenseFormer's partial sums, or transparent attention."""
    layers, in_part = count_layers(config, stack), config.dlcl_dilation > 1 or config.dlcl_period > 1
    if config.variant in TRANSPARENT and stack == "encoder":
        return TransparentAttention(config)
    if not config.has_history:
        return NoHistory()
    if in_part or config.dlcl_weights == "identity":
        return (PartialPreNormHistory if config.normalizes_before else PartialPostNormHistory)(config, layers)
    return (PreNormHistory if config.normalizes_before else PostNormHistory)(config, layers)


def new_embedding(config: AdminConfig, rows: int, layers: int) -> nn.Embedding:
    """Build the embeddings of `rows` tokens for a stack of `layers` layers; a new model draws them from N(0, 1/d)."""
    table = nn.Embedding(rows, config.d_model, config.pad_token_id)
    if config.variant == "t_fixup":
        table.gain = t_fixup_embedding_gain(layers)  # type: ignore[assignment]
    return table
