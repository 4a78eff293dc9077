"""The table of positions of stock Marian and Pegasus, which no checkpoint holds.

transformers computes it at every load, one Python number after the other: for 512 positions of 512 numbers, in encoder
and decoder, that takes about as long as all else that loads a model of 6-6 layers.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.pegasus.modeling_pegasus import PegasusSinusoidalPositionalEmbedding

SMALL = 3, 8  # positions and numbers of the table that is compared


def sinusoids(module: Any) -> Tensor:
    """The table [positions, d] in the type of the module's weight: transformers' formula for all numbers at once."""
    positions, d = module.weight.shape
    angles = np.arange(positions)[:, None] / np.power(10000, 2 * (np.arange(d) // 2) / d)
    halves = torch.FloatTensor(np.sin(angles[:, 0::2])), torch.FloatTensor(np.cos(angles[:, 1::2]))
    return torch.cat(halves, 1).to(module.weight.dtype)


def use_quick_sinusoids() -> None:
    """From now on the stock classes compute their tables by [`sinusoids`].

    A class is left alone where a small table of its own is another, as that of a later release might be.
    """
    for stock in (MarianSinusoidalPositionalEmbedding, PegasusSinusoidalPositionalEmbedding):
        computed = getattr(stock, "create_weight", None)
        if computed is None or computed is sinusoids:
            continue
        module = stock(*SMALL)
        table = computed(module)
        if isinstance(table, Tensor) and torch.equal(table, sinusoids(module)):
            stock.create_weight = sinusoids
