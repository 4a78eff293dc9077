"""The shape of a model: which sublayers its stacks have, in the order in which they run, and what they are called."""

from typing import Literal

from .configuration_admin import AdminConfig

Stack = Literal["encoder", "decoder"]
# The sublayers of a layer in the order in which they run: `AdminLayer.sublayers` and whoever has no model reads this.
SUBLAYERS: dict[Stack, tuple[str, ...]] = {
    "encoder": ("self_attn", "ffn"),
    "decoder": ("self_attn", "encoder_attn", "ffn"),
}
# fairseq, and after it every stock class of transformers, names the LayerNorms after their sublayers, all but the last.
NORM_NAMES = {
    f"{'final' if name == 'ffn' else name}_layer_norm": f"{name}_residual.layer_norm" for name in SUBLAYERS["decoder"]
}


def of_both_stacks(**fields: int) -> dict[str, int]:
    """Fields of a configuration that both stacks have: `ffn_dim` is `encoder_ffn_dim` and `decoder_ffn_dim`."""
    return {f"{stack}_{name}": value for stack in SUBLAYERS for name, value in fields.items()}


def count_layers(config: AdminConfig, stack: Stack) -> int:
    """N of the encoder, M of the decoder."""
    return config.encoder_layers if stack == "encoder" else config.decoder_layers


def count_sublayers(config: AdminConfig, stack: Stack) -> int:
    """n of a stack: two sublayers in an encoder layer, three in a decoder layer."""
    return len(SUBLAYERS[stack]) * count_layers(config, stack)
