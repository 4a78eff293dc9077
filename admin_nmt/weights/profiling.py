"""ω of ADMIN, measured on one batch (Liu et al. 2020, *Very Deep Transformers*, section 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from ..model.loss import IGNORED, without_padding
from .modes import training_mode

if TYPE_CHECKING:
    from ..model.configuration_admin import AdminConfig
    from ..model.modeling_admin import AdminForConditionalGeneration, AdminStack
    from ..model.residual import AdminPostNorm

Mode = Literal["unit", "reference"]
# The padding counts in the second, so that it wants a batch as the authors' are, of pairs of similar length.
MODES: dict[str, Mode] = {"profile": "unit", "profile_reference": "reference"}  # by omega_rule of the configuration
SEED = 1


@torch.no_grad()
def profile_omega(
    model: AdminForConditionalGeneration, batch: Mapping[str, Tensor], mode: Mode = "unit"
) -> dict[str, list[float]]:
    """Measure ω on one batch, write it into the model and return it.

    Args:
        model: of variant `admin`, not yet trained.
        batch: `input_ids` [B, S], `attention_mask` [B, S] and `labels` [B, T] (−100 or `<pad>` at padding) of about
            8,000 tokens; `decoder_input_ids` and `decoder_attention_mask` where they differ from what the labels give.
        mode: `unit` sets every ω to 1, runs the model once with dropout and takes ω_i = sqrt(Var[x_0] + Σ_{j<i}
            Var[f_j]) with ω_1 = 1, variances over non-padding positions. `reference` does what the authors' code does:
            it assigns ω on the way, ω_{i+1} = sqrt(Var[ω_i ⊙ x_{i−1}] + Var[f_i]), padding included.

    Returns:
        ω of the encoder's and the decoder's sublayers, in order: {"encoder": [...], "decoder": [...]}.

    Raises:
        ValueError: when the model has another variant, the mode is unknown, or the batch lacks a field or holds no
            token.
    """
    if model.config.variant != "admin":
        raise ValueError(f"variant: only 'admin' has an ω to profile, not {model.config.variant!r}")
    if mode not in get_args(Mode):
        raise ValueError(f"mode: {mode!r} is not one of {', '.join(get_args(Mode))}")
    missing = {"input_ids", "attention_mask", "labels"} - set(batch)
    if missing:
        raise ValueError(f"the profiling batch lacks {', '.join(sorted(missing))}")
    labels = without_padding(batch["labels"], model.config.pad_token_id)
    masks = {"encoder": batch["attention_mask"].bool(), "decoder": labels != IGNORED}
    if not all(mask.any() for mask in masks.values()):
        raise ValueError("the profiling batch holds no token that is not padding")
    measure = _UnitProfile if mode == "unit" else _ReferenceProfile
    stacks = {"encoder": model.model.encoder, "decoder": model.model.decoder}
    with ExitStack() as context:
        context.enter_context(_training_mode_with_seed(model))
        context.enter_context(_restored_on_errors(model))
        profiles = {name: measure(stack, masks[name]) for name, stack in stacks.items()}
        for profile in profiles.values():
            context.enter_context(profile.attached())
        decoder_ids = batch.get("decoder_input_ids", model.prepare_decoder_input_ids_from_labels(labels))
        decoder_mask = batch.get("decoder_attention_mask")
        model.model(batch["input_ids"], batch["attention_mask"], decoder_ids, decoder_mask, use_cache=False)
    omega = {name: profile.write() for name, profile in profiles.items()}
    model.config.omega_rule = next(rule for rule, measured in MODES.items() if measured == mode)
    model.config.omega_profiled = True
    return omega


def write_omega(model: AdminForConditionalGeneration, omega: Mapping[str, list[float]]) -> None:
    """Gives a model ω as [`profile_omega`] returns it."""
    for name, values in omega.items():
        stack: AdminStack = getattr(model.model, name)
        for block, value in zip(cast("list[AdminPostNorm]", stack.residual_blocks()), values, strict=True):
            nn.init.constant_(block.omega, value)


@contextmanager
def _training_mode_with_seed(model: nn.Module) -> Iterator[None]:
    """Dropout on, from a fixed seed: every process measures the same, and training's random numbers are not touched."""
    device = next(model.parameters()).device
    with training_mode(model), torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(SEED)
        yield


@contextmanager
def _restored_on_errors(model: AdminForConditionalGeneration) -> Iterator[None]:
    """ω as it was, where the batch cannot be run: profiling sets it to 1, which would be post-LN."""
    blocks = [block for stack in (model.model.encoder, model.model.decoder) for block in stack.residual_blocks()]
    before = [cast("AdminPostNorm", block).omega.clone() for block in blocks]
    try:
        yield
    except BaseException:
        for block, omega in zip(blocks, before, strict=True):
            cast("AdminPostNorm", block).omega.copy_(omega)
        raise


def _variance(x: Tensor) -> float:
    """Population variance over all elements, in float64."""
    return x.double().var(correction=0).item()


class _UnitProfile:
    """Variances of the embedding and of every f_i of a stack, while ω = 1 everywhere."""

    def __init__(self, stack: AdminStack, mask: Tensor):
        self.stack, self.mask = stack, mask
        self.blocks = cast("list[AdminPostNorm]", stack.residual_blocks())
        self.variances: list[float] = []
        for block in self.blocks:
            block.omega.fill_(1.0)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Record while this context is open."""
        outputs = [self.stack.embed_dropout, *(block.dropout for block in self.blocks)]
        handles = [module.register_forward_hook(self.record) for module in outputs]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def record(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self.variances.append(_variance(output[self.mask]))

    def write(self) -> list[float]:
        """Write ω into the blocks."""
        sums = torch.tensor(self.variances[:-1], dtype=torch.float64).cumsum(0)
        omega = [1.0, *sums[1:].sqrt().tolist()]
        for block, value in zip(self.blocks, omega, strict=True):
            block.omega.fill_(value)
        return omega


class _ReferenceProfile:
    """ω assigned on the way, as the authors' code does."""

    def __init__(self, stack: AdminStack, mask: Tensor):
        self.blocks = cast("list[AdminPostNorm]", stack.residual_blocks())
        self.omega = [1.0]
        self.skip_variance = 0.0

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Measure and assign while this context is open."""
        handles = [block.register_forward_pre_hook(self.before) for block in self.blocks]
        handles += [block.dropout.register_forward_hook(self.after) for block in self.blocks]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def before(self, block: AdminPostNorm, args: tuple) -> None:
        block.omega.fill_(self.omega[-1])
        self.skip_variance = _variance(args[0] * block.omega)

    def after(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self.omega.append(math.sqrt(self.skip_variance + _variance(output)))

    def write(self) -> list[float]:
        """ω was written on the way; the last value would be that of a sublayer which is not there."""
        return self.omega[:-1]


def needs_profiling(model: Any) -> bool:
    """True for a model that still has to take its ω from a batch.

    One that `from_pretrained` has loaded keeps the ω that its weights were trained with, also where that was never
    profiled because a plain Trainer trained it. A new one has to, also where its configuration is that of a profiled
    model.
    """
    if getattr(model.config, "variant", None) != "admin" or model.config.omega_rule not in MODES:
        return False
    blocks = [module for module in model.modules() if hasattr(module, "has_initial_omega")]
    return bool(blocks) and all(block.has_initial_omega() for block in blocks)


def omega_origin(config: AdminConfig) -> str:
    """Name the origin of a model's ω: `deepnorm`, `log_n`, `n`, or `profiled` or `profiled_reference` on a batch."""
    if config.variant == "deepnorm":
        return "deepnorm"
    if config.omega_rule not in MODES:
        return str(config.omega_rule)
    if not config.omega_profiled:
        return "log_n"  # which holds until profiling
    return "profiled" if MODES[config.omega_rule] == "unit" else "profiled_reference"
