"""The layers of encoder and decoder: attention and feed-forward sublayers, each in its residual block."""

from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .attention import AdminAttention, linear
from .configuration_admin import AdminConfig
from .dlcl import memory
from .dropout import Dropout
from .omega import xavier_gains
from .residual import Sublayer, common_part, residual_block
from .sublayers import SUBLAYERS, Stack


class AdminLayer(GradientCheckpointingLayer):
    """What encoder and decoder layers share: self-attention and feed-forward sublayers in their residual blocks."""

    def __init__(self, config: AdminConfig, stack: Stack, layer_idx: int):
        super().__init__()
        self.stack = stack
        ffn_dim = config.encoder_ffn_dim if stack == "encoder" else config.decoder_ffn_dim
        gain = xavier_gains(config, stack, layer_idx).out
        self.common = common_part(config)
        self.self_attn = AdminAttention(config, stack, layer_idx, is_causal=stack == "decoder")
        self.self_attn_residual = residual_block(config, stack, layer_idx, "self_attn")
        self.fc1 = linear(config.d_model, ffn_dim, gain)
        self.fc2 = linear(ffn_dim, config.d_model, gain)
        self.ffn_residual = residual_block(config, stack, layer_idx, "ffn")
        self.activation_fn = ACT2FN[config.activation_function]
        self.activation_dropout = Dropout(config.activation_dropout)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation_dropout(self.activation_fn(self.fc1(x))))

    def sublayers(self) -> list[Sublayer]:
        """The sublayers in the order in which they run."""
        linears = self.linears()
        return [Sublayer(name, getattr(self, f"{name}_residual"), *linears[name]) for name in SUBLAYERS[self.stack]]

    def linears(self) -> dict[str, tuple[tuple[nn.Linear, ...], nn.Linear]]:
        """Of each sublayer the matrices that read its input x, and the one that makes its output."""
        attention = self.self_attn
        return {
            "self_attn": ((attention.q_proj, attention.k_proj, attention.v_proj), attention.out_proj),
            "ffn": ((self.fc1,), self.fc2),
        }


class AdminEncoderLayer(AdminLayer):
    """Self-attention, feed-forward."""

    def __init__(self, config: AdminConfig, layer_idx: int):
        super().__init__(config, "encoder", layer_idx)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Unpack[TransformersKwargs]
    ) -> Tensor:
        common = self.common(hidden_states)
        x = self.self_attn_residual(
            hidden_states, lambda x: self.self_attn(x, attention_mask=attention_mask, **kwargs)[0], common
        )
        return self.ffn_residual(x, self.feed_forward, common)


class AdminDecoderLayer(AdminLayer):
    """Causal self-attention, attention to the encoder's output, feed-forward."""

    def __init__(self, config: AdminConfig, layer_idx: int):
        super().__init__(config, "decoder", layer_idx)
        self.encoder_attn = AdminAttention(config, "decoder", layer_idx)
        self.encoder_attn_residual = residual_block(config, "decoder", layer_idx, "encoder_attn")
        self.memory = memory(config, layer_idx)

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
        common = self.common(hidden_states)
        x = self.self_attn_residual(
            hidden_states, lambda x: self.self_attn(x, attention_mask=attention_mask, **kwargs)[0], common
        )
        x = self.encoder_attn_residual(
            x,
            lambda x: self.encoder_attn(x, self.memory(encoder_hidden_states), encoder_attention_mask, **kwargs)[0],
            common,
        )
        return self.ffn_residual(x, self.feed_forward, common)
