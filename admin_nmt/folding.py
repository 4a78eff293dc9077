"""Fold ω into the weights: an ADMIN or DeepNorm model becomes a plain post-LN Transformer with the same outputs."""

import copy
from typing import cast

import torch
from torch import Tensor, nn

from .model.modeling_admin import AdminDecoderLayer, AdminForConditionalGeneration, AdminLayer
from .model.residual import ScaledPostNorm

SMALLEST_OMEGA = 1e-3


class FoldingError(ValueError):
    """The model has no equivalent standard Transformer; the message names the reason or the sublayer."""


def sublayers(layer: AdminLayer) -> list[tuple[str, list[nn.Linear], nn.Linear]]:
    """(name, projections that read the sublayer's input, output projection) of a layer's sublayers, in order.

    Keys and values of cross-attention read the encoder's output, which no ω of the decoder touches.
    """
    attention = layer.self_attn
    rows = [("self_attn", [attention.q_proj, attention.k_proj, attention.v_proj], attention.out_proj)]
    if isinstance(layer, AdminDecoderLayer):
        rows.append(("encoder_attn", [layer.encoder_attn.q_proj], layer.encoder_attn.out_proj))
    return [*rows, ("ffn", [layer.fc1], layer.fc2)]


@torch.no_grad()
def fold_omega(model: AdminForConditionalGeneration) -> AdminForConditionalGeneration:
    """Return a copy of `model` with variant `post_ln` that computes the same, up to rounding.

    x_{i−1} = γ⊙z + β is the output of a LayerNorm, so ω_i moves into it: γ' = ω_i⊙γ, β' = ω_i⊙β, and the input columns
    of every weight that reads x_{i−1} are divided by ω_i. The first sublayer of a stack has no LayerNorm before it: its
    ω must be uniform, LN(c·x + f) = LN(x + f/c), which divides the output projection by c and changes LayerNorm's ε by
    1/c², an error of at most about 5e-5 (none for ω_1 = 1). Fold after averaging checkpoints, in float32 or wider.

    Raises:
        FoldingError: for DLCL and pre-LN, for a non-uniform ω of a first sublayer, for |ω| < 1e-3 and for half
            precision.
    """
    config = model.config
    if config.has_history:
        raise FoldingError(f"variant {config.variant!r} cannot be folded: share the model as it is, with its code")
    if config.normalizes_before:
        raise FoldingError(f"variant {config.variant!r} has no ω to fold: it is a standard pre-LN Transformer already")
    if model.dtype not in (torch.float32, torch.float64):
        raise FoldingError(f"fold in float32 or wider, not in {model.dtype}: call model.float() first")
    source = copy.deepcopy(model)
    if config.has_omega:
        _fold_stack(source.model.encoder.layers, "encoder")
        _fold_stack(source.model.decoder.layers, "decoder")
    folded_config = copy.deepcopy(config)
    folded_config.variant, folded_config.train_omega = "post_ln", False
    folded_config.omega_profiled = False
    with torch.device("meta"):
        folded = AdminForConditionalGeneration(folded_config)
    state = {name: tensor for name, tensor in source.state_dict().items() if not name.endswith(".omega")}
    folded.load_state_dict(state, assign=True)
    for stack in ("encoder", "decoder"):
        folded.get_submodule(f"model.{stack}").embed_positions = source.get_submodule(f"model.{stack}").embed_positions
    folded.tie_weights()
    folded.generation_config = copy.deepcopy(model.generation_config)
    return folded.train(model.training)


def _fold_stack(layers: nn.ModuleList, stack: str) -> None:
    previous: nn.LayerNorm | None = None
    for index, layer in enumerate(layers):
        for name, readers, output in sublayers(cast(AdminLayer, layer)):
            block: ScaledPostNorm = getattr(layer, f"{name}_residual")
            where = f"{stack} layer {index}, {name}"
            omega = block.omega.detach()
            smallest = omega.abs().min()
            if not smallest >= SMALLEST_OMEGA:  # which NaN is not either
                raise FoldingError(f"{where}: the smallest entry of |ω| is {smallest:.1e}, too near 0 to divide by")
            if previous is None:
                _fold_first(omega, output, where)
            else:
                _scale(previous, omega)
                for reader in readers:
                    reader.weight.div_(omega)
            previous = block.layer_norm


def _fold_first(omega: Tensor, output: nn.Linear, where: str) -> None:
    """LN(c·x + f) = LN(x + f/c)."""
    if not torch.allclose(omega, omega[0], rtol=1e-6, atol=0) or omega[0] < 0:
        raise FoldingError(f"{where}: ω of a first sublayer must be one positive number to be folded, and it is not")
    _scale(output, 1 / omega[0])


def _scale(module: nn.LayerNorm | nn.Linear, factor: Tensor) -> None:
    module.weight.mul_(factor)
    module.bias.mul_(factor)
