"""The layers of encoder and decoder: attention and feed-forward sublayers, each in its residual block."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .attention import AdminAttention, linear
from .configuration_admin import AdminConfig
from .dropout import Dropout
from .residual import Function, Residual, residual_block
from .sublayers import SUBLAYERS, Stack

Block = Callable[[AdminConfig, Stack, int, str], Residual]


@dataclass(frozen=True)
class Sublayer:
    """A sublayer's modules by what they do: f(x) = output(…(readers(x))) in its residual block.

    Keys and values of `encoder_attn` are no readers: they read the encoder's output, not x.
    """

    name: str
    block: Residual
    readers: tuple[nn.Linear, ...]
    output: nn.Linear


class AdminLayer(nn.Module):
    """Common part of encoder and decoder layers: self-attention and feed-forward sublayers in their residual blocks.

    Args:
        layer_idx: counted from 0.
        block: builds the residual block of a sublayer, of which [`residual_block`] knows those of the papers.
    """

    def __init__(self, config: AdminConfig, stack: Stack, layer_idx: int, block: Block):
        super().__init__()
        self.stack = stack
        ffn_dim = config.encoder_ffn_dim if stack == "encoder" else config.decoder_ffn_dim
        self.self_attn = AdminAttention(config, stack, layer_idx, is_causal=stack == "decoder")
        self.self_attn_residual = block(config, stack, layer_idx, "self_attn")
        self.fc1 = linear(config.d_model, ffn_dim)
        self.fc2 = linear(ffn_dim, config.d_model)
        self.ffn_residual = block(config, stack, layer_idx, "ffn")
        self.activation_fn = ACT2FN[config.activation_function]
        self.activation_dropout = Dropout(config.activation_dropout)

    def blocks(self) -> list[Residual]:
        """The residual blocks in the order in which they run."""
        return [getattr(self, f"{name}_residual") for name in SUBLAYERS[self.stack]]

    def run(self, x: Tensor, *functions: Function) -> Tensor:
        """Map x_{i−1} to x_i in each block in turn, given the functions f_i of its sublayers."""
        for block, f in zip(self.blocks(), functions, strict=True):
            x = block(x, f)
        return x

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation_dropout(self.activation_fn(self.fc1(x))))

    def sublayers(self) -> list[Sublayer]:
        """The sublayers in the order in which they run."""
        linears = self.linears()
        names = SUBLAYERS[self.stack]
        return [Sublayer(name, block, *linears[name]) for name, block in zip(names, self.blocks(), strict=True)]

    def linears(self) -> dict[str, tuple[tuple[nn.Linear, ...], nn.Linear]]:
        """Name for each sublayer the matrices that read its input x, and the one that makes its output."""
        attention = self.self_attn
        return {
            "self_attn": ((attention.q_proj, attention.k_proj, attention.v_proj), attention.out_proj),
            "ffn": ((self.fc1,), self.fc2),
        }


class AdminEncoderLayer(AdminLayer, GradientCheckpointingLayer):
    """Self-attention, feed-forward."""

    def __init__(self, config: AdminConfig, layer_idx: int, block: Block = residual_block):
        super().__init__(config, "encoder", layer_idx, block)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Unpack[TransformersKwargs]
    ) -> Tensor:
        return self.run(
            hidden_states,
            lambda x: self.self_attn(x, attention_mask=attention_mask, **kwargs)[0],
            self.feed_forward,
        )


class AdminDecoderLayer(AdminLayer, GradientCheckpointingLayer):
    """Causal self-attention, attention to the encoder's output, feed-forward."""

    def __init__(self, config: AdminConfig, layer_idx: int, block: Block = residual_block):
        super().__init__(config, "decoder", layer_idx, block)
        self.encoder_attn = AdminAttention(config, "decoder", layer_idx)
        self.encoder_attn_residual = block(config, "decoder", layer_idx, "encoder_attn")

    def linears(self) -> dict[str, tuple[tuple[nn.Linear, ...], nn.Linear]]:
        return super().linears() | {"encoder_attn": ((self.encoder_attn.q_proj,), self.encoder_attn.out_proj)}

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Tensor:
        kwargs["cache"] = cache
        return self.run(
            hidden_states,
            lambda x: self.self_attn(x, attention_mask=attention_mask, **kwargs)[0],
            lambda x: self.encoder_attn(x, encoder_hidden_states, encoder_attention_mask, **kwargs)[0],
            self.feed_forward,
        )
