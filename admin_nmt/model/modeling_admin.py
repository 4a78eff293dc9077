"""Encoder-decoder Transformers for deep stacks: post-LN, ADMIN, pre-LN and DLCL, and the rivals of `rivals.py`.

Sources: Liu, Duh et al. 2020, *Very Deep Transformers for Neural Machine Translation*; Liu, Liu et al. 2020,
*Understanding the Difficulty of Training Transformers*, the paper of ADMIN; Wang et al. 2019, *Learning Deep
Transformer Models for Machine Translation*. Shapes: B sentences, S source and T target positions, d = `d_model`, V the
size of the target vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention import AdminAttention
from .building import new_embedding, new_history, new_layer
from .cache_name import CACHE, accepts_past_key_values
from .configuration_admin import AdminConfig
from .dropout import Dropout
from .layers import AdminDecoderLayer, AdminEncoderLayer, AdminLayer, Sublayer
from .loss import chunked_label_smoothed_nll, label_smoothed_nll, per_token, shift_right, without_padding
from .positions import SinusoidalPositions
from .residual import LAYER_NORM_EPS, Residual
from .sublayers import Stack, count_layers

NEVER = -1e4  # logit of a token that is never scored: finite, so that arithmetic on scores stays free of NaN


def padding_mask(
    config: AdminConfig, embeddings: Tensor, attention_mask: Tensor | None, encoded: Tensor | None = None
) -> Any:
    """The mask that attention from `embeddings` [B, L, d] to themselves, or to `encoded` [B, S, d], makes of [B, S].

    transformers asks whether anything is masked at all. A GPU is not asked, as that would wait for it.
    """
    if (
        attention_mask is None
        or attention_mask.dim() != 2
        or attention_mask.is_cpu
        or config._attn_implementation != "sdpa"
    ):
        return create_bidirectional_mask(config, embeddings, attention_mask, encoder_hidden_states=encoded)
    return attention_mask[:, None, None].bool()


@dataclass
class AdminSeq2SeqLMOutput(Seq2SeqLMOutput):
    """`Seq2SeqLMOutput` with `nll`: the summed NLL of the labels in nats, no smoothing and no gradient."""

    nll: Tensor | None = None


class AdminPreTrainedModel(PreTrainedModel):
    """Initialisation as in the papers' code (Xavier, embeddings N(0, 1/d)), and what transformers wants to know."""

    config: AdminConfig
    config_class = AdminConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _can_compile_fullgraph = True

    def __init__(self, config: AdminConfig, *args: Any, **kwargs: Any):
        if config.share_encoder_decoder_embeddings:  # one vocabulary: `config.vocab_size = n` sets its size
            config.decoder_vocab_size = config.vocab_size
        config.validate()  # fields that were set after its construction, or by AutoConfig, nobody has looked at yet
        super().__init__(config, *args, **kwargs)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """As transformers'; a vocabulary that both sides share is that of both."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        if self.config.share_encoder_decoder_embeddings:
            self.config.decoder_vocab_size = embeddings.num_embeddings
        return embeddings

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        std = self.config.d_model**-0.5
        if isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=std * getattr(module, "gain", 1.0))
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, nn.Linear) and hasattr(module, "gain"):
            cast(Callable, module.xavier)(module.weight, gain=module.gain)
        elif isinstance(module, nn.Linear):  # an output layer that is not tied
            init.normal_(module.weight, std=std)
        elif callable(initialize := getattr(module, "initialize", None)):  # residual blocks, histories, positions
            initialize()


class AdminStack(AdminPreTrainedModel):
    """Common part of encoder and decoder: embedding, layers joined by their history, final LayerNorm of pre-LN."""

    def __init__(self, config: AdminConfig, stack: Stack):
        super().__init__(config)
        layers = [new_layer(config, stack, i) for i in range(count_layers(config, stack))]
        vocab_size = config.vocab_size if stack == "encoder" else config.decoder_vocab_size
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = new_embedding(config, vocab_size, len(layers))
        self.embed_positions = SinusoidalPositions(config)
        self.embed_dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(layers)
        self._no_split_modules = {type(layer).__name__ for layer in layers}
        self.history = new_history(config, stack)
        final_norm = config.normalizes_before
        self.layer_norm = nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS) if final_norm else nn.Identity()
        self.gradient_checkpointing = False
        self.post_init()

    def sublayers(self) -> list[Sublayer]:
        """The sublayers of all layers in the order in which they run."""
        return [sublayer for layer in self.layers for sublayer in cast(AdminLayer, layer).sublayers()]

    def residual_blocks(self) -> list[Residual]:
        """Their residual blocks, in the same order."""
        return [sublayer.block for sublayer in self.sublayers()]

    def token_embeddings(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(f"{type(self).__name__}: give either token ids or embeddings, not both or neither")
        return (self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds) * self.embed_scale

    def run_layers(self, embeddings: Tensor, positions: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        next_input = self.history()
        x = next_input(self.embed_dropout(embeddings + positions.to(embeddings.dtype)))
        for layer in self.layers:
            x = next_input(layer(x, *args, **kwargs))
        return self.layer_norm(x)


class AdminEncoder(AdminStack):
    """The stack of `encoder_layers` layers over the source."""

    _can_record_outputs: ClassVar = {"hidden_states": AdminEncoderLayer, "attentions": AdminAttention}

    def __init__(self, config: AdminConfig):
        super().__init__(config, "encoder")

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Encode ids [B, S] (or embeddings [B, S, d]) under a mask [B, S]; returns states [B, S, d].

        With transparent attention they are what the M decoder layers attend to, [B, S, M, d].
        """
        embeddings = self.token_embeddings(input_ids, inputs_embeds)
        positions = self.embed_positions(embeddings, attention_mask)
        mask = padding_mask(self.config, embeddings, attention_mask)
        return BaseModelOutput(last_hidden_state=self.run_layers(embeddings, positions, mask, **kwargs))


class AdminDecoder(AdminStack):
    """The stack of `decoder_layers` layers over the target so far."""

    _can_record_outputs: ClassVar = {
        "hidden_states": AdminDecoderLayer,
        "attentions": OutputRecorder(AdminAttention, index=1, layer_name="self_attn"),
        "cross_attentions": OutputRecorder(AdminAttention, index=1, layer_name="encoder_attn"),
    }

    def __init__(self, config: AdminConfig):
        super().__init__(config, "decoder")

    @accepts_past_key_values
    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Decode ids [B, T] given the encoder's output [B, S, d]; returns states [B, T, d] and the cache."""
        embeddings = self.token_embeddings(input_ids, inputs_embeds)
        if use_cache and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        past = cache.get_seq_length() if cache is not None else 0
        positions = self.embed_positions(embeddings, attention_mask, past)
        self_cache = cache.self_attention_cache if cache is not None else None
        causal_mask = create_causal_mask(self.config, embeddings, attention_mask, self_cache)
        cross_mask = padding_mask(self.config, embeddings, encoder_attention_mask, encoder_hidden_states)
        states = self.run_layers(
            embeddings,
            positions,
            causal_mask,
            encoder_hidden_states,
            cross_mask,
            cache=cache,
            **kwargs,
        )
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states, **{CACHE: cache})


class AdminModel(AdminPreTrainedModel):
    """Encoder and decoder, without an output layer."""

    def __init__(self, config: AdminConfig):
        super().__init__(config)
        if config.share_encoder_decoder_embeddings:
            self.shared = new_embedding(config, config.vocab_size, config.encoder_layers)
            self._tied_weights_keys = {
                "encoder.embed_tokens.weight": "shared.weight",
                "decoder.embed_tokens.weight": "shared.weight",
            }
        self.encoder = AdminEncoder(config)
        self.decoder = AdminDecoder(config)
        if config.share_encoder_decoder_embeddings and not config.tie_word_embeddings:  # transformers ties nothing then
            self.encoder.embed_tokens = self.decoder.embed_tokens = self.shared
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.encoder.embed_tokens = value
        if self.config.share_encoder_decoder_embeddings:
            self.shared = self.decoder.embed_tokens = value

    @accepts_past_key_values
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: tuple[Tensor] | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Seq2SeqModelOutput:
        """Map source ids [B, S] and target ids so far [B, T] to decoder states [B, T, d]."""
        encoded: BaseModelOutput
        if self.training and self.decoder.gradient_checkpointing:
            use_cache = False  # transformers would do so too, with a warning at which a compiled graph breaks
        if encoder_outputs is None:
            encoded = self.encoder(input_ids, attention_mask, inputs_embeds, use_cache=False, **kwargs)
        elif isinstance(encoder_outputs, tuple):
            encoded = BaseModelOutput(*encoder_outputs[:3])
        else:
            encoded = encoder_outputs
        outputs = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            encoded.last_hidden_state,
            attention_mask,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=outputs.last_hidden_state,
            **{CACHE: getattr(outputs, CACHE)},
            decoder_hidden_states=outputs.hidden_states,
            decoder_attentions=outputs.attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


class AdminForConditionalGeneration(AdminPreTrainedModel, GenerationMixin):
    """The translation model: [`AdminModel`] with an output layer, tied to the target embeddings by default."""

    _tied_weights_keys: ClassVar = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
    accepts_loss_kwargs = True  # the Trainer counts the target tokens of an update: num_items_in_batch

    def __init__(self, config: AdminConfig):
        self.attention_is_default = config._attn_implementation is None  # a training on a CPU may choose another then
        super().__init__(config)
        self.loss_type = None  # by its name a causal one, of which some Trainers count a token less a sentence
        self.model = AdminModel(config)
        if config.share_encoder_decoder_embeddings:
            self._tied_weights_keys = {  # type: ignore[misc]
                "lm_head.weight": "model.shared.weight",
                "model.encoder.embed_tokens.weight": "model.shared.weight",
                "model.decoder.embed_tokens.weight": "model.shared.weight",
            }
        self.lm_head: nn.Module = nn.Linear(config.d_model, config.decoder_vocab_size, bias=False)
        self.post_init()
        # The default of `generate` would cut every translation at 20 tokens.
        self.generation_config.max_length = config.max_position_embeddings

    @property
    def excluded_token(self) -> int | None:
        """Id of the token that the output layer never scores: `<pad>`, whose embedding row so stays zero."""
        pad = self.config.pad_token_id
        return None if self.config.score_padding or pad >= self.config.decoder_vocab_size else pad

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """As transformers'; of two vocabularies it is that of the source."""
        output = self.lm_head
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        if not self.config.share_encoder_decoder_embeddings:
            self.lm_head = output  # which the inherited method cuts or fills up to the size of the source's
        return embeddings

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Shift labels [B, T] one position to the right, behind `decoder_start_token_id`."""
        return shift_right(labels, self.config.decoder_start_token_id, self.config.pad_token_id)

    def compute_logits(self, states: Tensor) -> Tensor:
        """Logits [..., V] of decoder states [..., d]."""
        logits = self.lm_head(states)
        if self.excluded_token is not None:
            logits[..., self.excluded_token] = NEVER
        return logits

    def smoothed_loss(self, states: Tensor, labels: Tensor, num_items: Tensor | int | None) -> tuple[Tensor, Tensor]:
        """The training loss, divided by the target tokens of the update, and the summed NLL."""
        labels = without_padding(labels, self.config.pad_token_id, num_items)
        smoothing = self.config.label_smoothing, self.excluded_token
        if isinstance(self.lm_head, nn.Linear):
            loss, nll = chunked_label_smoothed_nll(states, self.lm_head.weight, labels, *smoothing)
        else:  # an adapter of PEFT in its place, which is more than a weight
            loss, nll = label_smoothed_nll(self.lm_head(states).flatten(0, 1), labels.flatten(), *smoothing)
        return per_token(loss, labels, num_items), nll

    @accepts_past_key_values
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: tuple[Tensor] | BaseModelOutput | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> AdminSeq2SeqLMOutput:
        """Predict the target of source ids [B, S].

        With `labels` [B, T] (−100 or `<pad>` where there is none) the loss is, in training mode, the label-smoothed
        loss summed over the target tokens and divided by `num_items_in_batch`, their number over all processes and
        accumulation steps (by default those of this call); `logits` is then None, for they never exist as a whole. In
        evaluation mode the loss is the mean NLL in nats per token, and logits [B, T, V] are returned.
        """
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs: Seq2SeqModelOutput = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            cache,
            inputs_embeds,
            decoder_inputs_embeds,
            use_cache,
            **kwargs,
        )
        loss = nll = logits = None
        if labels is not None and self.training:
            loss, nll = self.smoothed_loss(outputs.last_hidden_state, labels, num_items_in_batch)
        else:
            logits = self.compute_logits(outputs.last_hidden_state)
        if labels is not None and not self.training:
            labels = without_padding(labels, self.config.pad_token_id)
            nll = label_smoothed_nll(logits.flatten(0, 1), labels.flatten(), 0.0, self.excluded_token)[1]
            loss = per_token(nll, labels)
        return AdminSeq2SeqLMOutput(
            loss=loss,
            logits=logits,
            **{CACHE: getattr(outputs, CACHE)},
            decoder_hidden_states=outputs.decoder_hidden_states,
            decoder_attentions=outputs.decoder_attentions,
            cross_attentions=outputs.cross_attentions,
            encoder_last_hidden_state=outputs.encoder_last_hidden_state,
            encoder_hidden_states=outputs.encoder_hidden_states,
            encoder_attentions=outputs.encoder_attentions,
            nll=nll,
        )


AdminConfig.register_for_auto_class()
AdminModel.register_for_auto_class("AutoModel")
AdminForConditionalGeneration.register_for_auto_class("AutoModelForSeq2SeqLM")
__all__ = ["AdminForConditionalGeneration", "AdminModel", "AdminPreTrainedModel"]
