"""ω of ADMIN, measured on one batch (Liu, Duh et al. 2020, *Very Deep Transformers*, section 3)."""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args

import torch
from datasets import Dataset
from torch import Tensor, nn

from ..data.tokenized_pairs import random_pairs, similar_pairs
from ..model.configuration_admin import AdminConfig
from ..model.loss import IGNORED, without_padding
from ..model.modeling_admin import AdminForConditionalGeneration, AdminStack
from ..model.residual import AdminPostNorm
from .omega import write_omega

Mode = Literal["unit", "reference"]
MODES: dict[str, Mode] = {"profile": "unit", "profile_reference": "reference"}
"""How ω is measured, by `omega_rule` of the configuration."""
ORIGINS = {"profile": "profiled", "profile_reference": "profiled_reference"}
"""Names of an ω that was measured, in results.json, by the same."""
SEED = 1


@torch.no_grad()
def profile_omega(
    model: AdminForConditionalGeneration, batch: Mapping[str, Tensor], mode: Mode | None = None
) -> dict[str, list[float]]:
    """Measure ω on one batch, write it into the model and return it.

    Args:
        model: of variant `admin`, not yet trained.
        batch: `input_ids` [B, S], `attention_mask` [B, S] and `labels` [B, T] (−100 or `<pad>` at padding) of about
            8,000 tokens; `decoder_input_ids` and `decoder_attention_mask` where they differ from what the labels give.
        mode: `unit` sets every ω to 1, runs the model once with dropout and takes ω_i = sqrt(Var[x_0] + Σ_{j<i}
            Var[f_j]) with ω_1 = 1, variances over non-padding positions. `reference` does what the authors' code does:
            it assigns ω on the way, ω_{i+1} = sqrt(Var[ω_i ⊙ x_{i−1}] + Var[f_i]), padding included. By default that
            of the configuration's `omega_rule`, with a closed form `unit`.

    Returns:
        ω of the encoder's and the decoder's sublayers, in order: {"encoder": [...], "decoder": [...]}.

    Raises:
        ValueError: when the model has another variant, the mode is unknown, or the batch lacks a field or holds no
            token.
    """
    if model.config.variant != "admin":
        raise ValueError(f"variant: only 'admin' has an ω to profile, not {model.config.variant!r}")
    if mode is None:
        mode = MODES.get(str(model.config.omega_rule), "unit")
    if mode not in get_args(Mode):
        raise ValueError(f"mode: {mode!r} is not one of {', '.join(get_args(Mode))}")
    missing = {"input_ids", "attention_mask", "labels"} - set(batch)
    if missing:
        raise ValueError(f"the profiling batch lacks {', '.join(sorted(missing))}")
    labels = without_padding(batch["labels"], model.config.pad_token_id)
    source, target = batch["attention_mask"].bool(), labels != IGNORED
    if not (source.any() and target.any()):
        raise ValueError("the profiling batch holds no token that is not padding")
    # A copy is measured, of which the model keeps nothing where the batch cannot be run.
    measured = copy.deepcopy(model).train().model
    measure = _UnitProfile if mode == "unit" else _ReferenceProfile
    encoder, decoder = measure(measured.encoder, source), measure(measured.decoder, target)
    decoder_ids = batch.get("decoder_input_ids", model.prepare_decoder_input_ids_from_labels(labels))
    decoder_mask = batch.get("decoder_attention_mask")
    # Every process draws the same dropout, and training's random numbers are not touched.
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(SEED)
        measured(batch["input_ids"], batch["attention_mask"], decoder_ids, decoder_mask, use_cache=False)
    omega = {"encoder": encoder.omega(), "decoder": decoder.omega()}
    write_omega(model, omega)
    model.config.omega_rule = next(rule for rule, its_mode in MODES.items() if its_mode == mode)
    model.config.omega_profiled = True
    return omega


def profiling_batch(
    pairs: Dataset, collator: Callable[[list], dict[str, Tensor]], max_tokens: int, seed: int, mode: Mode
) -> dict[str, Tensor]:
    """Make the batch on which ω of a new model is measured.

    It is of random pairs. In mode `reference`, where the padding counts, it is one of training, as the authors' is: of
    random pairs of similar length.

    Args:
        pairs: a tokenised dataset.
        max_tokens: most target tokens of the batch.
        seed: of the choice.
    """
    indices = (similar_pairs if mode == "reference" else random_pairs)(pairs, max_tokens, seed)
    return collator(pairs.with_format(None, columns=["input_ids", "labels"]).__getitems__(indices))


def omega_origin(config: AdminConfig) -> str:
    """Name the origin of a model's ω: `deepnorm`, `log_n`, `n`, or one of [`ORIGINS`]."""
    rule = str(config.omega_rule)
    if config.variant == "deepnorm":
        return "deepnorm"
    if rule in MODES and not config.omega_profiled:
        return "log_n"  # which holds until profiling
    return ORIGINS.get(rule, rule)


def needs_profiling(model: Any) -> bool:
    """True for a model that still has to take its ω from a batch.

    One that `from_pretrained` has loaded keeps the ω that its weights were trained with, also where that was never
    profiled because a plain Trainer trained it. A new one has to, also where its configuration is that of a profiled
    model.
    """
    if getattr(model.config, "variant", None) != "admin" or model.config.omega_rule not in MODES:
        return False
    # By attribute: a model that was loaded with the code in its folder has blocks of a class of its own.
    blocks = [module for module in model.modules() if hasattr(module, "has_initial_omega")]
    return bool(blocks) and all(block.has_initial_omega() for block in blocks)


def _variance(x: Tensor) -> float:
    """Population variance over all elements, in float64."""
    return x.double().var(correction=0).item()


class _UnitProfile:
    """Variances of the embedding and of every f_i of a stack, while ω = 1 everywhere."""

    def __init__(self, stack: AdminStack, mask: Tensor):
        self.mask = mask
        self.variances: list[float] = []
        stack.embed_dropout.register_forward_hook(self.record)
        for block in stack.residual_blocks():
            cast(AdminPostNorm, block).omega.fill_(1.0)
            block.dropout.register_forward_hook(self.record)

    def record(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self.variances.append(_variance(output[self.mask]))

    def omega(self) -> list[float]:
        """ω_1 = 1 and the roots of the sums; the variance of the last f_i belongs to no sublayer's ω."""
        sums = torch.tensor(self.variances[:-1], dtype=torch.float64).cumsum(0)
        return [1.0, *sums[1:].sqrt().tolist()]


class _ReferenceProfile:
    """ω assigned on the way, as the authors' code does."""

    def __init__(self, stack: AdminStack, mask: Tensor):
        self.values = [1.0]
        self.skip_variance = 0.0
        for block in stack.residual_blocks():
            block.register_forward_pre_hook(self.before)
            block.dropout.register_forward_hook(self.after)

    def before(self, block: AdminPostNorm, args: tuple) -> None:
        block.omega.fill_(self.values[-1])
        self.skip_variance = _variance(args[0] * block.omega)

    def after(self, module: nn.Module, args: tuple, output: Tensor) -> None:
        self.values.append(math.sqrt(self.skip_variance + _variance(output)))

    def omega(self) -> list[float]:
        """The values that were assigned; the last one would be that of a sublayer which is not there."""
        return self.values[:-1]
