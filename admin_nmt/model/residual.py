"""The residual block of each variant: LayerNorm, dropout and skip connection around a sublayer's function f."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_admin import AdminConfig
from .dropout import Dropout
from .omega import initial_omega
from .sublayers import Stack

Function = Callable[[Tensor], Tensor]
LAYER_NORM_EPS = 1e-5


class PostNorm(nn.Module):
    """x_i = LN(x_{i−1} + f_i(x_{i−1})), Liu et al. 2020, eq. 1."""

    def __init__(self, config: AdminConfig, stack: Stack):
        super().__init__()
        self.layer_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, f: Function) -> Tensor:
        return self.layer_norm(x + self.dropout(f(x)))


class PreNorm(PostNorm):
    """x_i = x_{i−1} + f_i(LN(x_{i−1})), Wang et al. 2019, eq. 4."""

    def forward(self, x: Tensor, f: Function) -> Tensor:
        return x + self.dropout(f(self.layer_norm(x)))


class ScaledPostNorm(PostNorm):
    """x_i = LN(ω_i ⊙ x_{i−1} + f_i(x_{i−1})), Liu et al. 2020, eq. 2; with ω = α it is DeepNorm.

    ω is a vector of width d_model: a buffer, or a parameter with `train_omega`. That of a stack's first sublayer is
    never trained, for no LayerNorm stands before it into which ω could be folded.
    """

    def __init__(self, config: AdminConfig, stack: Stack, is_first: bool):
        super().__init__(config, stack)
        self.initial_omega = initial_omega(config, stack)
        omega = torch.full((config.d_model,), self.initial_omega)
        # A frozen parameter would come back from `from_pretrained` as one that is trained.
        self.omega = nn.Parameter(omega) if config.train_omega and not is_first else nn.Buffer(omega)

    def initialize(self) -> None:
        """Give ω the value of a new model."""
        init.constant_(self.omega, self.initial_omega)

    def forward(self, x: Tensor, f: Function) -> Tensor:
        y = self.dropout(f(x))
        return self.layer_norm(torch.addcmul(y.to(x.dtype), x, self.omega.to(x.dtype)))


def residual_block(config: AdminConfig, stack: Stack, is_first: bool = False) -> PostNorm:
    """The block that `config.variant` names; `is_first` for the first sublayer of a stack."""
    if config.has_omega:
        return ScaledPostNorm(config, stack, is_first)
    return PreNorm(config, stack) if config.normalizes_before else PostNorm(config, stack)


@dataclass(frozen=True)
class Sublayer:
    """A sublayer's modules by what they do: f(x) = output(…(readers(x))) in its residual block.

    Keys and values of `encoder_attn` are no readers: they read the encoder's output, not x.
    """

    name: str
    block: PostNorm
    readers: tuple[nn.Linear, ...]
    output: nn.Linear
