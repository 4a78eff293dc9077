"""Sampling of translations, reproducible sentence by sentence: what back-translation draws its sources with."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..options import Sampling
from .beam_search import Hypotheses
from .search_settings import SearchSettings


def uniforms(sampling: Sampling, source: Sequence[int], count: int, draw: int = 0) -> npt.NDArray[np.float64]:
    """The first `count` random numbers in [0, 1) of a source sentence, one for each token of its translation.

    Args:
        draw: number of the translation, where the sentence gets several.
    """
    name = f"{sampling.seed}/{draw}" if draw else str(sampling.seed)
    text = f"{name}:{','.join(map(str, source))}"
    key = int.from_bytes(blake2b(text.encode(), digest_size=16).digest())
    return np.random.Generator(np.random.Philox(key=key)).random(count)


class Samples(Hypotheses):
    """One hypothesis of each sentence, whose next token is drawn: the token where the summed probability passes u.

    Args:
        limits: most tokens of each translation, [B]. settings: of the search, whose `num_beams` is 1.
        prefixes: what each must begin with, [B, P].
        uniforms: u of each token of each sentence, [B, at least the largest limit + 1], float64.
    """

    def __init__(
        self,
        limits: Tensor,
        settings: SearchSettings,
        prefixes: Tensor | None,
        uniforms: Tensor,
        sampling: Sampling,
    ) -> None:
        super().__init__(limits, settings, prefixes)
        self.uniforms, self.sampling = uniforms, sampling

    def advance(self, log_probs: Tensor) -> None:
        """Continue every hypothesis, given the `log_probs` of its next token, [B, V]."""
        length, done = self.tokens.shape[2], self.done
        log_probs = self._restricted(log_probs)
        token = self._draw(log_probs, length)
        self.scores = self.scores + log_probs.gather(1, token[:, None])
        is_end = torch.isin(token, self.eos)
        ends = (is_end & ~done)[:, None]
        self.best = torch.where(ends, self.scores / (length + 1) ** self.settings.length_penalty, self.best)
        self.best_tokens[:, 0, length] = torch.where(is_end | done, self.eos[0], token)
        self.ended += is_end
        self.tokens = torch.cat([self.tokens, token[:, None, None]], 2)
        self.mask = torch.cat([self.mask, torch.zeros_like(self.mask[:, :, :1])], 2)

    def _draw(self, log_probs: Tensor, length: int) -> Tensor:
        """A token for each hypothesis of `length` tokens, [B]."""
        top_k = self.sampling.top_k
        if top_k is not None and top_k < log_probs.shape[1]:
            log_probs = log_probs.masked_fill(log_probs < log_probs.topk(top_k).values[:, -1:], -torch.inf)
        total = (log_probs / self.sampling.temperature).softmax(-1, dtype=torch.float64).cumsum(-1)
        u = self.uniforms[self.sentences, length, None] * total[:, -1:]
        last = log_probs.shape[1] - 1
        return torch.searchsorted(total, u, right=True)[:, 0].clamp(max=last)  # beyond where it is NaN


def samples(
    inputs: dict[str, Tensor],
    limits: Tensor,
    settings: SearchSettings,
    prefixes: Tensor | None,
    sampling: Sampling,
    draw: int,
) -> Samples:
    """The empty hypotheses of a batch: `input_ids` and `attention_mask`, [B, S], on the device of `limits`, [B]."""
    rows: Any = zip(inputs["input_ids"].tolist(), inputs["attention_mask"].sum(1).tolist(), strict=True)
    count = int(limits.max()) + 1
    numbers = np.stack([uniforms(sampling, row[:length], count, draw) for row, length in rows])
    return Samples(limits, settings, prefixes, torch.from_numpy(numbers).to(limits.device), sampling)
