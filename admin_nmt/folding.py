"""Fold ω into the weights: an ADMIN or DeepNorm model becomes a plain post-LN Transformer with the same outputs."""

import copy
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn

from .model.configuration_admin import AdminConfig
from .model.modeling_admin import AdminForConditionalGeneration, AdminStack
from .model.residual import ScaledPostNorm
from .model.sublayers import SUBLAYERS, omega_keys

SMALLEST_OMEGA = 1e-3


class FoldingError(ValueError):
    """The model has no equivalent standard Transformer; the message names the reason or the sublayer."""


def omega_by_sublayer(model: AdminForConditionalGeneration) -> dict[str, Tensor]:
    """ω of each sublayer in the order in which they run, under names such as `encoder 0 self_attn`; none without ω."""
    return {name: model.get_parameter_or_buffer(key).detach() for name, key in omega_keys(model.config).items()}


def check_foldable(config: AdminConfig, omega: Mapping[str, Tensor]) -> None:
    """Refuse a model that no standard post-LN Transformer equals.

    Args:
        omega: ω [d] by sublayer, as [`omega_by_sublayer`] names them.

    Raises:
        FoldingError: for DLCL and pre-LN, for a non-uniform ω of a first sublayer and for |ω| < 1e-3.
    """
    if config.has_history or config.is_transparent:
        raise FoldingError(f"variant {config.variant!r} cannot be folded: share the model as it is, with its code")
    if config.normalizes_before:
        raise FoldingError(f"variant {config.variant!r} has no ω to fold: it is a standard pre-LN Transformer already")
    first = [f"{stack} 0 {sublayers[0]}" for stack, sublayers in SUBLAYERS.items()]
    for name, w in omega.items():
        smallest = w.abs().min()
        if not smallest >= SMALLEST_OMEGA:  # which NaN is not either
            raise FoldingError(f"{name}: the smallest entry of |ω| is {smallest:.1e}, too near 0 to divide by")
        if name in first and (not torch.allclose(w, w[0], rtol=1e-6, atol=0) or w[0] < 0):
            raise FoldingError(f"{name}: ω of a first sublayer must be one positive number to be folded, and it is not")


@torch.no_grad()
def fold_omega(model: AdminForConditionalGeneration) -> AdminForConditionalGeneration:
    """Return a copy of `model` with variant `post_ln` that computes the same up to rounding.

    Where ω of a stack's first sublayer is not 1 (closed forms, DeepNorm), up to 5e-5 in the states.

    x_{i−1} = γ⊙z + β is the output of a LayerNorm, so ω_i moves into it: γ' = ω_i⊙γ, β' = ω_i⊙β, and the input columns
    of every weight that reads x_{i−1} are divided by ω_i. The first sublayer of a stack has no LayerNorm before it: its
    ω must be uniform, LN(c·x + f) = LN(x + f/c), which divides the output projection by c and changes LayerNorm's ε by
    1/c², from where the 5e-5 come. Fold after averaging checkpoints, in float32 or wider.

    Raises:
        FoldingError: as [`check_foldable`], and for half precision.
    """
    config = model.config
    check_foldable(config, omega_by_sublayer(model))
    if model.dtype not in (torch.float32, torch.float64):
        raise FoldingError(f"fold in float32 or wider, not in {model.dtype}: call model.float() first")
    scaled = copy.deepcopy(model)
    if config.has_omega:
        _fold_stack(scaled.model.encoder)
        _fold_stack(scaled.model.decoder)
    folded_config = copy.deepcopy(config)
    folded_config.variant, folded_config.train_omega = "post_ln", False
    folded_config.omega_profiled = False
    with torch.device("meta"):
        folded = AdminForConditionalGeneration(folded_config)
    state = {name: tensor for name, tensor in scaled.state_dict().items() if not name.endswith(".omega")}
    folded.load_state_dict(state, assign=True)
    for stack in ("encoder", "decoder"):
        # The sinusoids are not in the state dict and would stay on the meta device.
        folded.get_submodule(f"model.{stack}").embed_positions = scaled.get_submodule(f"model.{stack}").embed_positions
    folded.tie_weights()
    folded.generation_config = copy.deepcopy(model.generation_config)
    return folded.train(model.training)


def _fold_stack(stack: AdminStack) -> None:
    previous: nn.LayerNorm | None = None
    for sublayer in stack.sublayers():
        block = cast(ScaledPostNorm, sublayer.block)
        omega = block.omega.detach()
        if previous is None:  # LN(c·x + f) = LN(x + f/c)
            _scale(sublayer.output, 1 / omega[0])
        else:
            _scale(previous, omega)
            for reader in sublayer.readers:
                reader.weight.div_(omega)
        previous = block.layer_norm


def _scale(module: nn.LayerNorm | nn.Linear, factor: Tensor) -> None:
    module.weight.mul_(factor)
    module.bias.mul_(factor)
