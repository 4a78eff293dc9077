"""The rivals of the papers' variants, each by what it changes in their layers, their history or their first weights.

Sources: DeepNet, Wang et al. 2022 (DeepNorm); Takase et al. 2023 and takase/b2t_connection (B2T); Zhang et al. 2019 and
bzhangGo/zero (DS-Init); Bachlechner et al. 2020 (ReZero); Huang et al. 2020 and layer6ai-labs/T-Fixup; Sun et al. 2025
(LayerNorm scaling); Bapna et al. 2018 and tensorflow/lingvo (transparent attention); Pagliardini et al. 2024
(DenseFormer).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_admin import TRANSPARENT, AdminConfig
from .dlcl import LayerHistory, NoHistory, PostNormHistory, PreNormHistory
from .dropout import Dropout
from .layers import AdminDecoderLayer, AdminEncoderLayer, AdminLayer
from .residual import AdminPostNorm, Function, PostNorm, PreNorm, Residual, residual_block
from .sublayers import SUBLAYERS, Stack, count_layers

# Residual blocks and layers


class ScaledPreNorm(PreNorm):
    """x_i = x_{i−1} + f_i(LN(x_{i−1}) / √l) in layer l, counted from 1 in each stack, Sun et al. 2025, section 4."""

    def __init__(self, config: AdminConfig, layer_idx: int):
        super().__init__(config)
        self.scale = 1 / math.sqrt(layer_idx + 1)

    def forward(self, x: Tensor, f: Function) -> Tensor:
        return x + self.dropout(f(self.scale * self.layer_norm(x)))


class BottomToTop(PostNorm):
    """x_i = LN(x_in + x_{i−1} + f_i(x_{i−1})), x_in the layer's input: its last sublayer in Takase et al. 2023."""

    def forward(self, x: Tensor, f: Function, layer_input: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer_norm(layer_input + (x + self.dropout(f(x))))


class BottomToTopLayer(AdminLayer):
    """A layer whose last sublayer is [`BottomToTop`]."""

    def run(self, x: Tensor, *functions: Function) -> Tensor:
        *others, last = self.blocks()
        y = x
        for block, f in zip(others, functions[:-1], strict=True):
            y = block(y, f)
        return last(y, functions[-1], x)


class BottomToTopEncoderLayer(BottomToTopLayer, AdminEncoderLayer):
    """Self-attention, feed-forward."""


class BottomToTopDecoderLayer(BottomToTopLayer, AdminDecoderLayer):
    """Causal self-attention, attention to the encoder's output, feed-forward."""


class LayerWeight(nn.Module):
    """α of ReZero, a parameter [1] that all sublayers of a layer share, in the paper and its released code."""

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(1))

    def initialize(self) -> None:
        """Give α the value of a new model."""
        init.zeros_(self.alpha)

    def forward(self) -> Tensor:
        return self.alpha


class ReZeroLayer(AdminLayer):
    """x_i = x_{i−1} + α f_i(x_{i−1}), Bachlechner et al. 2020, eq. 1; one α a layer, 0 in a new model."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.common = LayerWeight()

    def run(self, x: Tensor, *functions: Function) -> Tensor:
        alpha = self.common()
        return super().run(x, *((lambda x, f=f: f(x) * alpha) for f in functions))


class ReZeroEncoderLayer(ReZeroLayer, AdminEncoderLayer):
    """Self-attention, feed-forward."""


class ReZeroDecoderLayer(ReZeroLayer, AdminDecoderLayer):
    """Causal self-attention, attention to the encoder's output, feed-forward."""


class TransparentDecoderLayer(AdminDecoderLayer):
    """Layer j of the decoder, which attends to z_j of [`TransparentAttention`]."""

    def __init__(self, config: AdminConfig, layer_idx: int, block: Callable[..., Residual]):
        super().__init__(config, layer_idx, block)
        self.layer_idx = layer_idx

    def forward(self, x: Tensor, mask: Tensor | None, encoded: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # type: ignore[override]
        """Decode states [B, T, d] given z of all layers, [B, S, M, d]."""
        return super().forward(x, mask, encoded[:, :, self.layer_idx], *args, **kwargs)


def rival_block(config: AdminConfig, stack: Stack, layer_idx: int, sublayer: str) -> Residual:
    """The block that a rival has in the place of [`residual_block`]'s."""
    if config.variant == "deepnorm":  # x_i = LN(α x_{i−1} + f_i(x_{i−1})): ADMIN with α in the place of ω
        return AdminPostNorm(config, deepnorm_alpha(config, stack))
    if config.variant == "ln_scaling":
        return ScaledPreNorm(config, layer_idx)
    if config.variant == "b2t" and sublayer == SUBLAYERS[stack][-1]:
        return BottomToTop(config)
    if config.variant in ("rezero", "t_fixup"):
        return Residual(config)
    return residual_block(config, stack, layer_idx, sublayer)


RIVAL_LAYERS: dict[Stack, dict[str, Callable[..., AdminLayer]]] = {
    "encoder": {"b2t": BottomToTopEncoderLayer, "rezero": ReZeroEncoderLayer},
    "decoder": {"b2t": BottomToTopDecoderLayer, "rezero": ReZeroDecoderLayer}
    | dict.fromkeys(TRANSPARENT, TransparentDecoderLayer),
}


def rival_layer(
    config: AdminConfig, stack: Stack, layer_idx: int, papers_layer: Callable[..., AdminLayer]
) -> AdminLayer:
    """Build layer `layer_idx`, counted from 0, of the rival that `config.variant` names.

    Args:
        papers_layer: the class that a rival has which changes nothing but residual blocks or first weights.
    """
    layer = RIVAL_LAYERS[stack].get(config.variant, papers_layer)(config, layer_idx, rival_block)
    gains = xavier_gains(config, stack, layer_idx)
    by_name = {"q_proj": gains.qk, "k_proj": gains.qk, "v_proj": gains.v}
    for name, module in layer.named_modules():
        if isinstance(module, nn.Linear):
            module.gain = by_name.get(name.rpartition(".")[2], gains.out)  # type: ignore[assignment]
            if config.variant == "deepnorm":
                module.xavier = init.xavier_normal_
    return layer


# Histories


class TransparentAttention(NoHistory):
    """z_j = Σ_i s_ij h_i over the embedding and the outputs h_i of N encoder layers, with s_j = softmax(w_j).

    Decoder layer j attends to z_j (Bapna et al. 2018). The softmax starts uniform; dropout falls on w, which starts as
    1/(N+1), as in the authors' Lingvo (WeightedSumLayer). Pre-LN's final LayerNorm normalises each z_j, as it does the
    sum of DLCL; the stack of Lingvo leaves them as they are.
    """

    def __init__(self, config: AdminConfig):
        super().__init__()
        states = config.encoder_layers + 1
        self.weight = nn.Parameter(torch.full((config.decoder_layers, states), 1 / states))
        self.dropout = Dropout(config.dropout)

    def initialize(self) -> None:
        """Give w the value of a new model."""
        init.constant_(self.weight, 1 / self.weight.shape[1])

    def forward(self) -> Callable[[Tensor], Tensor]:
        """Return a function that passes each output on and answers the last one with all z_j, [B, S, M, d]."""
        states: list[Tensor] = []
        weight = self.weight

        def next_input(y: Tensor) -> Tensor:
            states.append(y)
            return y if len(states) < weight.shape[1] else self.sums(weight, torch.stack(states))

        return next_input

    def sums(self, weight: Tensor, states: Tensor) -> Tensor:
        """z [B, S, M, d] of w [M, N+1] and states h [N+1, B, S, d]."""
        with torch.autocast(states.device.type, enabled=False):  # it would cast all states
            return torch.einsum("ji,ibsd->bsjd", self.dropout(weight).softmax(1).to(states.dtype), states)


class PartialHistory(LayerHistory):
    """DLCL whose W is the identity's but for some entries, which alone are trained.

    Row l sums y_l, y_{l−k}, y_{l−2k}, … for the dilation k if l is a multiple of the period, else it takes y_l alone.
    DenseFormer (Pagliardini et al. 2024, section 3.2) starts as the identity and has no LayerNorms.
    """

    def __init__(self, config: AdminConfig, layers: int):
        self.dilation, self.period = config.dlcl_dilation, config.dlcl_period
        super().__init__(config, layers)
        is_learned = isinstance(self.weight, nn.Parameter)
        self.trained = nn.Buffer(self.trained_entries(), persistent=False) if is_learned else None

    def initialize(self) -> None:
        """Give W the value of a new model, and set which entries are trained, which no checkpoint stores."""
        super().initialize()
        if self.trained is not None:
            init.copy_(self.trained, self.trained_entries())

    def initial_weight(self) -> Tensor:
        return torch.eye(self.layers + 1) if self.kind == "identity" else super().initial_weight()

    def summed(self) -> Tensor:
        row = torch.arange(self.layers + 1)
        back = row[:, None] - row
        return ((back >= 0) & (back % self.dilation == 0) & self.on_period()) | (back == 0)

    def on_period(self) -> Tensor:
        """The rows that are sums, bool of shape [L+1, 1]."""
        return torch.arange(self.layers + 1)[:, None] % self.period == 0

    def trained_entries(self) -> Tensor:
        """Entries of W that are weights, bool of shape [L+1, L+1]; DenseFormer has L(L+3)/2, none of them in row 0."""
        trained = self.summed() & self.on_period()
        trained[0] &= self.kind != "identity"
        return trained

    def current_weight(self) -> Tensor:
        """W as a pass uses it: entries that are not trained are the identity's, whatever is stored, and stay so."""
        if self.trained is None:
            return self.weight
        identity = torch.eye(self.layers + 1, dtype=self.weight.dtype, device=self.weight.device)
        return torch.where(self.trained, self.weight, identity)


class PartialPreNormHistory(PartialHistory, PreNormHistory):
    """The partial form of [`PreNormHistory`]."""


class PartialPostNormHistory(PartialHistory, PostNormHistory):
    """The partial form of [`PostNormHistory`]."""


# First weights


@dataclass(frozen=True)
class Gains:
    """Xavier gains of the matrices of a layer: of q and k, of v, and of `out`, fc1 and fc2."""

    qk: float
    v: float
    out: float


def xavier_gains(config: AdminConfig, stack: Stack, layer_idx: int) -> Gains:
    """The gains with which a new model of a rival draws the matrices of layer `layer_idx`, counted from 0."""
    if config.variant == "deepnorm":
        beta = deepnorm_beta(config, stack)
        return Gains(1.0, beta, beta)
    if config.variant == "t_fixup":
        scale = t_fixup_scale(config, stack)
        return Gains(2**-0.5, scale, scale)
    scale = depth_scale(config, stack, layer_idx)
    return Gains(2**-0.5 * scale, 2**-0.5 * scale, scale)


def deepnorm_alpha(config: AdminConfig, stack: Stack) -> float:
    """α of DeepNorm, its ω: 0.81(N⁴M)^{1/16} in an encoder of N layers, (3M)^{1/4} in a decoder of M layers."""
    if stack == "encoder":
        return 0.81 * (config.encoder_layers**4 * config.decoder_layers) ** (1 / 16)
    return (3 * config.decoder_layers) ** (1 / 4)


def deepnorm_beta(config: AdminConfig, stack: Stack) -> float:
    """β of DeepNorm, the gain of v, out, fc1 and fc2: 0.87(N⁴M)^{−1/16} and (12M)^{−1/4}."""
    if stack == "encoder":
        return 0.87 * (config.encoder_layers**4 * config.decoder_layers) ** (-1 / 16)
    return (12 * config.decoder_layers) ** (-1 / 4)


def t_fixup_scale(config: AdminConfig, stack: Stack) -> float:
    """Gain of v, out, fc1 and fc2 in T-Fixup: 0.67 N^{−1/4} in the encoder, (9M)^{−1/4} in the decoder.

    Huang et al. 2020. The released code scales the same matrices, and leaves the biases of q, k and v as PyTorch draws
    them, where ours are 0.
    """
    return 0.67 * config.encoder_layers ** (-1 / 4) if stack == "encoder" else (9 * config.decoder_layers) ** (-1 / 4)


def t_fixup_embedding_gain(layers: int) -> float:
    """Gain of the embeddings of a stack of `layers` layers in T-Fixup: (9N)^{−1/4}, Huang et al. 2020.

    Embeddings that both stacks share have that of the encoder, as in the released code; the paper has one N.
    """
    return (9 * layers) ** (-1 / 4)


def depth_scale(config: AdminConfig, stack: Stack, layer_idx: int) -> float:
    """Factor of a layer's weights below Xavier's: 1/√l in layer l of DS-Init, Zhang et al. 2019.

    Its released code divides the variance by √l, not the standard deviation, so that it has l^{−1/4}. The released code
    of B2T scales all matrices of a layer by 1/√N, besides its connection. `released_init` chooses what the code does.
    """
    layer = layer_idx + 1
    if config.variant == "ds_init":
        return layer ** (-1 / 4) if config.released_init else layer ** (-1 / 2)
    return count_layers(config, stack) ** (-1 / 2) if config.released_init else 1.0
