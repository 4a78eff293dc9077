"""One pass over translations that are there already: what a model gives to their tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...data.batching import Seq2SeqCollator
from ...model.attention import softmax_over_keys
from ...model.loss import IGNORED
from .batchwise import batchwise
from .ensemble import Ensemble, members
from .module_copies import is_switchable, with_attention

RECORDED = "recorded"


def token_log_probs(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """Log-probability of every label, float32 [batch, longest]; what stands at padding means nothing.

    The stock Marians of the Hub, which learnt no probability of `<pad>`, say by `renormalize_logits` that it has none.
    """
    labels = inputs.pop("labels").clamp(min=0)[..., None]
    logits = model(**inputs, use_cache=False).logits.float()
    if model.generation_config.renormalize_logits:
        logits[..., model.config.pad_token_id] = -torch.inf
    return logits.gather(-1, labels)[..., 0] - logits.logsumexp(-1)


@torch.no_grad()
def target_log_probs(model: PreTrainedModel, inputs: dict[str, Tensor], targets: Sequence[Sequence[int]]) -> Tensor:
    """Log-probability of a target for each source of a batch, [B].

    Args:
        inputs: `input_ids` and `attention_mask`, [B, S], on the model's device.
        targets: ids with end of sentence.
    """
    collate = Seq2SeqCollator(model.config.pad_token_id, model.config.decoder_start_token_id)
    both = collate([{"input_ids": [0], "labels": list(target)} for target in targets])
    labels = both["labels"].to(model.device)
    decoder = {"labels": labels, "decoder_input_ids": both["decoder_input_ids"].to(model.device)}
    return token_log_probs(model, inputs | decoder).masked_fill(labels == IGNORED, 0).sum(1)


def recorded_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, scaling: float, **kwargs: Any
) -> tuple[Tensor, None]:
    """Attention under a mask that is added, [B, 1, 1 or T, S]; a module with a `record` adds the heads' mean to it."""
    weights = softmax_over_keys(torch.matmul(query * scaling, key.transpose(2, 3)) + attention_mask)
    if hasattr(module, "record"):
        module.record.append(weights.float().mean(1))
    return torch.matmul(weights, value).transpose(1, 2), None


ALL_ATTENTION_FUNCTIONS.register(RECORDED, recorded_attention)


def default_layer(model: Any) -> int:
    """The decoder layer before the last, whose attention aligns best in Garg et al. (2019), section 4.1."""
    return max(-2, *(-one.config.decoder_layers for one in members(model)))


def attention_to_source(
    model: PreTrainedModel | Ensemble,
    source_ids: Sequence[Sequence[int]],
    target_ids: Sequence[Sequence[int]],
    layer: int,
    *,
    max_tokens: int = 4096,
    progress: bool = False,
) -> list[np.ndarray]:
    """Attention of a decoder layer from each token of given translations, [target, source] of each pair.

    The mean of the layer's heads, and of the models of an ensemble; a row sums to 1.

    Args:
        source_ids: ids of each source, with end of sentence.
        target_ids: ids of each target, without end of sentence.
        layer: 0 for the first decoder layer, −1 for the last.
        max_tokens: token budget of a batch: pairs times the longest source or target.
        progress: show a progress bar on the first process.

    Raises:
        ValueError: the decoder has no such layer, or the model is of another type than the search's own.
    """
    for one in members(model):
        if not is_switchable(one):
            raise ValueError(f"alignment: does not work with the model type {one.config.model_type}; leave it out")
        layers = one.config.decoder_layers
        if not -layers <= layer < layers:
            known = f"give 0 to {layers - 1}, or -{layers} to -1 from the last"
            raise ValueError(f"alignment layer {layer}: the decoder has {layers} layers; {known}")
    collate = Seq2SeqCollator(model.config.pad_token_id, model.config.decoder_start_token_id)
    end = model.config.eos_token_id
    end = end[0] if isinstance(end, list) else end

    def attend(batch: list[int]) -> list[np.ndarray]:
        # A label more than the target has, so that there is one; its row is left out.
        pairs = [{"input_ids": source_ids[i], "labels": [*target_ids[i], end]} for i in batch]
        inputs = {name: tensor.to(model.device) for name, tensor in collate(pairs).items()}
        weights = torch.stack([_recorded(one, inputs, layer) for one in members(model)]).mean(0).cpu().numpy()
        return [row[: len(target_ids[i]), : len(source_ids[i])] for row, i in zip(weights, batch, strict=True)]

    lengths = [max(len(source), len(target) + 1) for source, target in zip(source_ids, target_ids, strict=True)]
    return batchwise(model, lengths, attend, max_tokens=max_tokens, progress=progress, desc="aligning", unit="pair")


@torch.no_grad()
def _recorded(model: PreTrainedModel, inputs: dict[str, Tensor], layer: int) -> Tensor:
    """The attention of a layer to the sources of a batch, [B, T, S]."""
    decoder: Any = with_attention(model.get_decoder(), RECORDED)
    encoder: Any = model.get_encoder()
    decoder.layers[layer].encoder_attn.record = []
    source_mask, targets = inputs["attention_mask"], inputs["decoder_input_ids"]
    states = encoder(input_ids=inputs["input_ids"], attention_mask=source_mask).last_hidden_state
    lowest = torch.finfo(states.dtype).min
    hidden = states.new_zeros(source_mask.shape).masked_fill(source_mask == 0, lowest)[:, None, None]
    future = states.new_full((targets.shape[1],) * 2, lowest).triu(1).expand(len(targets), 1, -1, -1)
    decoder(
        input_ids=targets,
        attention_mask=future,
        encoder_hidden_states=states,
        encoder_attention_mask=hidden,
        use_cache=False,
    )
    return decoder.layers[layer].encoder_attn.record[0]
