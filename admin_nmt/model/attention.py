"""Multi-head attention through the attention interface of transformers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .configuration_admin import AdminConfig
from .dropout import Dropout
from .sublayers import Stack

QKV_GAIN = 2**-0.5  # fairseq draws q, k and v as one matrix of three times the height
LANES = 16  # float32 numbers in the widest vector register of a CPU


def linear(d_in: int, d_out: int, gain: float = 1.0) -> nn.Linear:
    """A linear layer that a new model draws by Xavier with this gain."""
    layer = nn.Linear(d_in, d_out)
    layer.gain, layer.xavier = gain, init.xavier_uniform_  # type: ignore[assignment]
    return layer


def eager_attention_forward(
    module: "AdminAttention", query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √d_head + mask) v by plain batched products: on a CPU the fastest at the length of sentences."""
    scores = torch.matmul(query * module.scaling, key.transpose(2, 3))
    if attention_mask is not None:
        scores += attention_mask
    weights = module.attention_dropout(softmax_over_keys(scores).to(query.dtype))
    return torch.matmul(weights, value).transpose(1, 2), weights


def softmax_over_keys(scores: Tensor) -> Tensor:
    """Softmax over the last dimension, as quick on a CPU as its kernels allow.

    They make hard work of half precision, which is computed in float32, and go number by number through rows that are
    shorter than a vector register: ten times as long for 15 keys as for 16. Such rows are filled up with −∞, which adds
    nothing to their sums.
    """
    if not scores.is_cpu or torch.compiler.is_compiling():
        return scores.softmax(-1)
    keys, dtype = scores.shape[-1], torch.promote_types(scores.dtype, torch.float32)
    filled = scores if keys >= LANES else nn.functional.pad(scores, (0, LANES - keys), value=-torch.inf)
    return filled.softmax(-1, dtype=dtype)[..., :keys].to(scores.dtype)


class AdminAttention(nn.Module):
    """Multi-head attention, of a sequence to itself or to `key_value_states`."""

    def __init__(self, config: AdminConfig, stack: Stack, layer_idx: int | None = None, is_causal: bool = False):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        heads = config.encoder_attention_heads if stack == "encoder" else config.decoder_attention_heads
        self.head_dim = config.d_model // heads
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = Dropout(config.attention_dropout)
        self.k_proj = linear(config.d_model, config.d_model, QKV_GAIN)
        self.v_proj = linear(config.d_model, config.d_model, QKV_GAIN)
        self.q_proj = linear(config.d_model, config.d_model, QKV_GAIN)
        self.out_proj = linear(config.d_model, config.d_model)

    def split_heads(self, x: Tensor) -> Tensor:
        """[B, L, d] → [B, heads, L, d / heads]."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def keys_and_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        return self.split_heads(self.k_proj(states)), self.split_heads(self.v_proj(states))

    def cached_keys_and_values(
        self, states: Tensor, cache: EncoderDecoderCache, is_cross: bool
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of all positions so far; those of the encoder's output are computed once."""
        if not is_cross:
            return cache.self_attention_cache.update(*self.keys_and_values(states), self.layer_idx)
        if cache.is_updated.get(self.layer_idx):
            layer = cache.cross_attention_cache.layers[self.layer_idx]
            return layer.keys, layer.values
        cache.is_updated[self.layer_idx] = True
        return cache.cross_attention_cache.update(*self.keys_and_values(states), self.layer_idx)

    def forward(
        self,
        hidden_states: Tensor,
        key_value_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `hidden_states` [B, L, d] to itself or to `key_value_states` [B, S, d]; returns [B, L, d]."""
        is_cross = key_value_states is not None
        states = key_value_states if is_cross else hidden_states
        query = self.split_heads(self.q_proj(hidden_states))
        if cache is None:
            key, value = self.keys_and_values(states)
        else:
            key, value = self.cached_keys_and_values(states, cache, is_cross)
        attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.attention_dropout.p if self.training else 0.0
        output, weights = attention_interface(
            self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
        )
        return self.out_proj(output.flatten(2)), weights
