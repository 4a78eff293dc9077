"""Several models that translate as one: each token is scored by the mean of their log-probabilities."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel


class Ensemble(nn.Module):
    """Models of the same vocabularies; the defaults of the search are those of the first.

    A token's score is the arithmetic mean of its log-probabilities, so the scores of all tokens are those of no
    distribution. Marian takes their sum, which ranks translations in the same order. Fairseq takes the mean of the
    probabilities, which lets one model that is sure of a token outvote the others; here one that is sure that a token
    is wrong does.

    Args:
        models: on one device, in the order in which they are named.

    Raises:
        ValueError: there are fewer than two, or their sizes of vocabulary or special tokens differ.
    """

    def __init__(self, models: Sequence[PreTrainedModel]) -> None:
        super().__init__()
        if len(models) < 2:
            raise ValueError(f"an ensemble of {len(models)}: give at least two models")
        fields = ("vocab_size", "decoder_vocab_size", "pad_token_id", "eos_token_id", "decoder_start_token_id")
        for model, field in ((model, field) for model in models[1:] for field in fields):
            first, other = (getattr(one.config, field, None) for one in (models[0], model))
            if first != other and None not in (first, other):
                names = f"{models[0].name_or_path} and {model.name_or_path}"
                raise ValueError(f"{names} cannot be combined: their {field} is {first} and {other}")
        self.models = nn.ModuleList(models)

    @property
    def config(self) -> PreTrainedConfig:
        """Configuration of the model with the fewest positions."""
        return min((model.config for model in self.members), key=lambda config: config.max_position_embeddings)

    @property
    def members(self) -> list[PreTrainedModel]:
        return list(self.models)

    @property
    def generation_config(self) -> GenerationConfig:
        return self.members[0].generation_config

    @property
    def device(self) -> torch.device:
        return self.members[0].device

    @property
    def name_or_path(self) -> str:
        return " and ".join(model.name_or_path for model in self.members)


def members(model: Any) -> list[PreTrainedModel]:
    """The models of an ensemble, or the one model."""
    return model.members if isinstance(model, Ensemble) else [model]


def combined(logits: Sequence[Tensor]) -> Tensor:
    """Log-probabilities of the next tokens, [N, V], float32: the mean of those of each model, of its `logits` [N, V].

    A row is NaN throughout where a logit of it is no finite number.
    """
    rows = [x.float().log_softmax(-1) for x in logits]
    return rows[0] if len(rows) == 1 else torch.stack(rows).mean(0)
