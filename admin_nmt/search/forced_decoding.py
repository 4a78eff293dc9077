"""One pass over translations that are there already: what a model gives to their tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..data.batching import Seq2SeqCollator
from ..model.loss import IGNORED


def token_log_probs(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    """Log-probability of every label, float32 [batch, longest]; what stands at padding means nothing."""
    labels = inputs.pop("labels").clamp(min=0)[..., None]
    logits = model(**inputs, use_cache=False).logits.float()
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
