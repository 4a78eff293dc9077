"""Sinusoidal position embeddings of Marian and of fairseq."""

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_admin import AdminConfig


def marian_sinusoids(positions: int, d: int) -> Tensor:
    """Angles p·10000^(−2j/d) for p = 0, 1, …; the sines fill the first half of a row, the cosines the second."""
    frequencies = 10000 ** (torch.arange(d // 2, dtype=torch.float64) * (-2 / d))
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1).float()


def fairseq_sinusoids(positions: int, d: int) -> Tensor:
    """Angles p·exp(−j·ln 10000/(d/2−1)) for p = 2, 3, …: fairseq counts on from the id of its padding, 1."""
    frequencies = torch.exp(torch.arange(d // 2, dtype=torch.float64) * -(math.log(10000) / max(d // 2 - 1, 1)))
    angles = torch.arange(2, positions + 2, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1).float()


def position_ids(embeddings: Tensor, attention_mask: Tensor | None, past: int | Tensor = 0) -> Tensor:
    """Rows of [`SinusoidalPositions`] for embeddings [B, L, d] behind `past` positions: 1, 2, …, and 0 for padding.

    Counting in the mask [B, past + L], where there is one, makes the result independent of the side of the padding.
    """
    length = embeddings.shape[1]
    if attention_mask is None or attention_mask.dim() != 2:
        return torch.arange(1, length + 1, device=embeddings.device)[None] + past
    mask = attention_mask.long()
    return (mask.cumsum(1) * mask)[:, -length:]


class SinusoidalPositions(nn.Module):
    """A frozen table of `max_position_embeddings` sinusoids behind a row of zeros for padding; never saved."""

    def __init__(self, config: AdminConfig):
        super().__init__()
        self.config = config
        self.table = nn.Buffer(self.sinusoids(), persistent=False)

    def initialize(self) -> None:
        """Fill the table, which no checkpoint holds."""
        init.copy_(self.table, self.sinusoids())

    def sinusoids(self) -> Tensor:
        """The table, float32 of shape [positions + 1, d]."""
        build = marian_sinusoids if self.config.positions == "marian" else fairseq_sinusoids
        table = build(self.config.max_position_embeddings, self.config.d_model)
        return torch.cat([torch.zeros_like(table[:1]), table])

    def forward(self, embeddings: Tensor, attention_mask: Tensor | None = None, past: int | Tensor = 0) -> Tensor:
        """Positions [B, L, d], or [1, L, d] without a mask, of the arguments of [`position_ids`]."""
        length, limit = past + embeddings.shape[1], len(self.table) - 1
        if isinstance(length, int) and length > limit:  # a static cache, whose `past` is a tensor, has its own limit
            raise ValueError(f"{length} tokens are more than max_position_embeddings, {limit}: split the sentence")
        return self.table[position_ids(embeddings, attention_mask, past)]
