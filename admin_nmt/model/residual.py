"""The residual block of each variant: LayerNorm, dropout and skip connection around a sublayer's function f."""

from collections.abc import Callable

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
    """x_i = x_{i−1} + f_i(x_{i−1}): dropout and skip connection, to which the papers' variants add a LayerNorm.

    A block maps x_{i−1} [..., d] and its sublayer's function f_i to x_i [..., d].
    """

    def __init__(self, config: AdminConfig):
        super().__init__()
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, f: Function) -> Tensor:
        return x + self.dropout(f(x))


class NormedResidual(Residual):
    """A block with a LayerNorm."""

    def __init__(self, config: AdminConfig):
        super().__init__(config)
        self.layer_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS)


class PostNorm(NormedResidual):
    """Post-LN: x_i = LN(x_{i−1} + f_i(x_{i−1})), Liu, Duh et al. 2020, eq. 1."""

    def forward(self, x: Tensor, f: Function) -> Tensor:
        return self.layer_norm(x + self.dropout(f(x)))


class PreNorm(NormedResidual):
    """Pre-LN: x_i = x_{i−1} + f_i(LN(x_{i−1})), Wang et al. 2019, eq. 4."""

    def forward(self, x: Tensor, f: Function) -> Tensor:
        return x + self.dropout(f(self.layer_norm(x)))


class AdminPostNorm(PostNorm):
    """ADMIN: x_i = LN(ω_i ⊙ x_{i−1} + f_i(x_{i−1})), Liu, Duh et al. 2020, eq. 2.

    ω is a vector of width d_model, constant (a buffer) unless it is `trained` (a parameter).
    """

    is_new = False

    def __init__(self, config: AdminConfig, initial_omega: float, trained: bool = False):
        super().__init__(config)
        self.initial_omega = initial_omega
        omega = torch.full((config.d_model,), initial_omega)
        # A constant ω is a buffer: `from_pretrained` would make a frozen parameter one that is trained.
        self.omega = nn.Parameter(omega) if trained else nn.Buffer(omega)

    def initialize(self) -> None:
        """Give ω the value of a new model, unless `from_pretrained` has loaded it."""
        self.is_new = not getattr(self.omega, "_is_hf_initialized", False)
        init.constant_(self.omega, self.initial_omega)

    def has_initial_omega(self) -> bool:
        """True where ω has the value of a new model, and was neither loaded nor measured nor trained since."""
        return self.is_new and torch.equal(self.omega, torch.full_like(self.omega, self.initial_omega))

    def forward(self, x: Tensor, f: Function) -> Tensor:
        y = self.dropout(f(x))
        return self.layer_norm(torch.addcmul(y.to(x.dtype), x, self.omega.to(x.dtype)))


def residual_block(config: AdminConfig, stack: Stack, layer_idx: int, sublayer: str) -> Residual:
    """The block of the papers' variant that `config.variant` names, for a sublayer of layer `layer_idx` from 0."""
    if config.variant == "admin":
        # Without a LayerNorm before it, ω of a stack's first sublayer can be folded only while it is one number.
        is_first = layer_idx == 0 and sublayer == SUBLAYERS[stack][0]
        return AdminPostNorm(config, initial_omega(config, stack), config.train_omega and not is_first)
    return PreNorm(config) if config.normalizes_before else PostNorm(config)
