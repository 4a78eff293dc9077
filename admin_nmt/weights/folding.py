"""Fold ω into the weights: an ADMIN or DeepNorm model becomes a plain post-LN Transformer with the same outputs."""

import copy
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..model.configuration_admin import TRANSPARENT, AdminConfig
from ..model.modeling_admin import AdminForConditionalGeneration, AdminStack
from ..model.residual import AdminPostNorm
from ..model.rivals import ScaledPreNorm
from ..model.sublayers import SUBLAYERS
from .omega import omega_by_sublayer

SMALLEST_OMEGA = 1e-3
AS_IT_IS = "share the model as it is, to be loaded with trust_remote_code=True"
NO_LAYER_NORM = "it has no LayerNorm, and every standard Transformer has one in each sublayer"
NO_STANDARD_FORM = {
    **dict.fromkeys(("dlcl_pre_ln", "dlcl_post_ln", *TRANSPARENT), "no standard Transformer joins its layers so"),
    "b2t": "no standard Transformer adds a layer's input before its last LayerNorm",
    "rezero": NO_LAYER_NORM,
    "t_fixup": NO_LAYER_NORM,
}


class FoldingError(ValueError):
    """The model has no equivalent standard Transformer; the message names the reason or the sublayer."""


def check_foldable(config: AdminConfig, omega: Mapping[str, Tensor]) -> None:
    """Refuse a model that no standard post-LN Transformer equals.

    Args:
        omega: ω [d] by sublayer, as [`omega_by_sublayer`] names them.

    Raises:
        FoldingError: for DLCL, transparent attention, pre-LN, `b2t`, `rezero` and `t_fixup`, for a non-uniform ω of a
            first sublayer and for |ω| < 1e-3.
    """
    if reason := NO_STANDARD_FORM.get(config.variant):
        raise FoldingError(f"variant {config.variant!r} cannot be folded: {reason}; {AS_IT_IS}")
    if config.normalizes_before:
        raise FoldingError(f"variant {config.variant!r} has no ω to fold: export it, as a standard pre-LN Transformer")
    first = [f"{stack} 0 {sublayers[0]}" for stack, sublayers in SUBLAYERS.items()]
    for name, w in omega.items():
        smallest = w.abs().min()
        if not smallest >= SMALLEST_OMEGA:  # which NaN is not either
            raise FoldingError(f"{name}: the smallest entry of |ω| is {smallest:.1e}, too near 0 to divide by")
        if name in first and (not torch.allclose(w, w[0], rtol=1e-6, atol=0) or w[0] < 0):
            raise FoldingError(f"{name}: ω of a first sublayer must be one positive number to be folded, and it is not")


def refuse_adapters(model: PreTrainedModel) -> None:
    """Refuse a model with adapters of PEFT: what they add is not in the weights yet.

    Raises:
        FoldingError: saying how to merge them.
    """
    if hasattr(model, "peft_config"):
        raise FoldingError("the model has adapters of PEFT: merge them first, model.merge_and_unload() of a PeftModel")


def fold_omega(model: AdminForConditionalGeneration) -> AdminForConditionalGeneration:
    """Return a copy of `model` with variant `post_ln` that computes the same up to rounding.

    Where ω of a stack's first sublayer is not 1 (closed forms, DeepNorm), the states differ by up to 5e-5.

    x_{i−1} = γ⊙z + β is the output of a LayerNorm, so ω_i moves into it: γ' = ω_i⊙γ, β' = ω_i⊙β, and the input columns
    of every weight that reads x_{i−1} are divided by ω_i. The first sublayer of a stack has no LayerNorm before it: its
    ω must be uniform, LN(c·x + f) = LN(x + f/c), which divides the output projection by c and changes LayerNorm's ε by
    1/c²: the source of the 5e-5. Fold after averaging checkpoints, in float32 or wider.

    Raises:
        FoldingError: as [`check_foldable`], for adapters, and for half precision where there is ω to fold.
    """
    refuse_adapters(model)
    check_foldable(model.config, omega_by_sublayer(model))
    return fold_checked(model)


@torch.no_grad()
def fold_checked(model: AdminForConditionalGeneration) -> AdminForConditionalGeneration:
    """Return a copy of variant `post_ln`, or `pre_ln` of a model that normalises before.

    The caller has checked, by [`check_foldable`] or [`stock_class`], that the model has such an equivalent.

    Of `ln_scaling` 1/√l is folded: LN(x)/√l has the weight γ/√l and the bias β/√l.

    Raises:
        FoldingError: for half precision where there is something to fold.
    """
    config = model.config
    if config.is_folded_on_export and model.dtype not in (torch.float32, torch.float64):
        raise FoldingError(f"fold in float32 or wider, not in {model.dtype}: call model.float() first")
    scaled = copy.deepcopy(model)
    for stack in (scaled.model.encoder, scaled.model.decoder):
        if config.has_omega:
            _fold_stack(stack)
        if config.variant == "ln_scaling":
            for block in cast(list[ScaledPreNorm], stack.residual_blocks()):
                _scale(block.layer_norm, block.scale)
    return _as_variant("pre_ln" if config.normalizes_before else "post_ln", scaled)


def _as_variant(variant: str, scaled: AdminForConditionalGeneration) -> AdminForConditionalGeneration:
    """The weights of `scaled`, but for ω, in a model of another variant."""
    config = copy.deepcopy(scaled.config)
    config.variant, config.omega_rule = variant, AdminConfig.omega_rule
    config.omega_profiled = config.train_omega = config.released_init = False
    with torch.device("meta"):
        model = AdminForConditionalGeneration(config)
    state = {name: tensor for name, tensor in scaled.state_dict().items() if not name.endswith(".omega")}
    model.load_state_dict(state, assign=True)
    for stack in ("encoder", "decoder"):
        # The sinusoids are not in the state dict and would stay on the meta device.
        model.get_submodule(f"model.{stack}").embed_positions = scaled.get_submodule(f"model.{stack}").embed_positions
    model.tie_weights()
    model.generation_config = scaled.generation_config
    return model.train(scaled.training)


def _fold_stack(stack: AdminStack) -> None:
    previous: nn.LayerNorm | None = None
    for sublayer in stack.sublayers():
        block = cast(AdminPostNorm, sublayer.block)
        omega = block.omega.detach()
        if previous is None:  # the first sublayer, whose ω is one number
            _scale(sublayer.output, 1 / omega[0])
        else:
            _scale(previous, omega)
            for reader in sublayer.readers:
                reader.weight.div_(omega)
        previous = block.layer_norm


def _scale(module: nn.LayerNorm | nn.Linear, factor: Tensor | float) -> None:
    module.weight.mul_(factor)
    module.bias.mul_(factor)
