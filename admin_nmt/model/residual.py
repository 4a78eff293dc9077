"""The residual block of each variant: LayerNorm, dropout and skip connection around a sublayer's function f."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_admin import AdminConfig
from .dropout import Dropout
from .omega import initial_omega
from .sublayers import SUBLAYERS, Stack

Function = Callable[[Tensor], Tensor]
LAYER_NORM_EPS = 1e-5


class Residual(nn.Module):
    """x_i = x_{i−1} + f_i(x_{i−1}), without LayerNorm, as T-Fixup has it (Huang et al. 2020).

    Every block takes x [..., d], f, and `common`: what [`common_part`] gives all blocks of a layer in one pass.
    """

    def __init__(self, config: AdminConfig):
        super().__init__()
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, f: Function, common: Tensor) -> Tensor:
        return x + self.dropout(f(x))


class ReZero(Residual):
    """x_i = x_{i−1} + α f_i(x_{i−1}), Bachlechner et al. 2020, eq. 1; one α a layer, 0 in a new model."""

    def forward(self, x: Tensor, f: Function, common: Tensor) -> Tensor:
        return x + self.dropout(f(x) * common)


class PostNorm(Residual):
    """x_i = LN(x_{i−1} + f_i(x_{i−1})), Liu et al. 2020, eq. 1."""

    def __init__(self, config: AdminConfig):
        super().__init__(config)
        self.layer_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)

    def forward(self, x: Tensor, f: Function, common: Tensor) -> Tensor:
        return self.layer_norm(x + self.dropout(f(x)))


class BottomToTop(PostNorm):
    """x_i = LN(x_in + x_{i−1} + f_i(x_{i−1})), x_in the layer's input: its last sublayer in Takase et al. 2023."""

    def forward(self, x: Tensor, f: Function, common: Tensor) -> Tensor:
        return self.layer_norm(common + (x + self.dropout(f(x))))


class PreNorm(PostNorm):
    """x_i = x_{i−1} + f_i(LN(x_{i−1})), Wang et al. 2019, eq. 4."""

    def forward(self, x: Tensor, f: Function, common: Tensor) -> Tensor:
        return x + self.dropout(f(self.layer_norm(x)))


class ScaledPreNorm(PostNorm):
    """x_i = x_{i−1} + f_i(LN(x_{i−1}) / √l) in layer l, counted from 1 in each stack, Sun et al. 2025, section 4."""

    def __init__(self, config: AdminConfig, layer_idx: int):
        super().__init__(config)
        self.scale = 1 / math.sqrt(layer_idx + 1)

    def forward(self, x: Tensor, f: Function, common: Tensor) -> Tensor:
        return x + self.dropout(f(self.scale * self.layer_norm(x)))


class ScaledPostNorm(PostNorm):
    """x_i = LN(ω_i ⊙ x_{i−1} + f_i(x_{i−1})), Liu et al. 2020, eq. 2; with ω = α it is DeepNorm.

    ω is a vector of width d_model: a buffer, or a parameter with `train_omega`. That of a stack's first sublayer is
    never trained, for no LayerNorm stands before it into which ω could be folded.
    """

    is_new = False

    def __init__(self, config: AdminConfig, stack: Stack, is_first: bool):
        super().__init__(config)
        self.initial_omega = initial_omega(config, stack)
        omega = torch.full((config.d_model,), self.initial_omega)
        # A frozen parameter would come back from `from_pretrained` as one that is trained.
        self.omega = nn.Parameter(omega) if config.train_omega and not is_first else nn.Buffer(omega)

    def initialize(self) -> None:
        """Give ω the value of a new model, unless `from_pretrained` has loaded it."""
        self.is_new = not getattr(self.omega, "_is_hf_initialized", False)
        init.constant_(self.omega, self.initial_omega)

    def has_initial_omega(self) -> bool:
        """Whether ω has the value of a new model, and was neither loaded nor measured nor trained since."""
        return self.is_new and torch.equal(self.omega, torch.full_like(self.omega, self.initial_omega))

    def forward(self, x: Tensor, f: Function, common: Tensor) -> Tensor:
        y = self.dropout(f(x))
        return self.layer_norm(torch.addcmul(y.to(x.dtype), x, self.omega.to(x.dtype)))


WITHOUT_NORM = {"rezero": ReZero, "t_fixup": Residual}


def residual_block(config: AdminConfig, stack: Stack, layer_idx: int, sublayer: str) -> Residual:
    """The block that `config.variant` names, for a sublayer of layer `layer_idx`, counted from 0."""
    if config.has_omega:
        return ScaledPostNorm(config, stack, is_first=layer_idx == 0 and sublayer == SUBLAYERS[stack][0])
    if config.variant == "ln_scaling":
        return ScaledPreNorm(config, layer_idx)
    if config.variant == "b2t" and sublayer == SUBLAYERS[stack][-1]:
        return BottomToTop(config)
    if config.variant in WITHOUT_NORM:
        return WITHOUT_NORM[config.variant](config)
    return PreNorm(config) if config.normalizes_before else PostNorm(config)


class LayerWeight(nn.Module):
    """α of ReZero, a parameter [1] that all sublayers of a layer share, in the paper and its released code."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(1))

    def initialize(self) -> None:
        """Give α the value of a new model."""
        init.zeros_(self.alpha)

    def forward(self, x: Tensor) -> Tensor:
        return self.alpha


def common_part(config: AdminConfig) -> nn.Module:
    """What maps the input of a layer to what its blocks share: α for ReZero, otherwise the input itself, for B2T."""
    return LayerWeight() if config.variant == "rezero" else nn.Identity()


@dataclass(frozen=True)
class Sublayer:
    """A sublayer's modules by what they do: f(x) = output(…(readers(x))) in its residual block.

    Keys and values of `encoder_attn` are no readers: they read the encoder's output, not x.
    """

    name: str
    block: Residual
    readers: tuple[nn.Linear, ...]
    output: nn.Linear
