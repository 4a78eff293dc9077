"""Callbacks and meters of the training loop."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..data.batching import TokenBatchSampler


class EpochShuffle(TrainerCallback):
    """Tells the batch sampler which epoch begins.

    The Trainer's own call does not reach a sampler that accelerate has wrapped twice, as it does when a run of
    several processes resumes in the middle of an epoch: the rest of the epoch would come in the wrong order.
    """

    def __init__(self) -> None:
        self.sampler: TokenBatchSampler | None = None

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self.sampler is not None:
            self.sampler.set_epoch(int(state.epoch))


class TokenMeter:
    """Counts target tokens, their NLL and the time they took, from one log entry to the next."""

    def __init__(self) -> None:
        self._start: float | None = None
        self._reset()

    def _reset(self) -> None:
        self.tokens: Tensor | int = 0
        self.nll: Tensor | int = 0

    def add_tokens(self, tokens: Tensor | int) -> None:
        """Adds the target tokens of an update, of all processes; the first call starts the clock."""
        if self._start is None:
            self._start = time.perf_counter()
        self.tokens = self.tokens + tokens

    def add_nll(self, nll: Tensor) -> None:
        """Adds the summed NLL of a batch of this process."""
        self.nll = self.nll + nll.detach()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves the time of this block out, such as an evaluation's."""
        start = time.perf_counter()
        yield
        if self._start is not None:
            self._start += time.perf_counter() - start

    def read(self, accelerator: Any) -> dict[str, float]:
        """Target tokens, their number a second, their mean NLL in nats if the model gives it; then starts from zero."""
        tokens, now = float(self.tokens), time.perf_counter()
        readings: dict[str, float] = {}
        if tokens and self._start is not None:
            if torch.is_tensor(self.nll):
                readings["nll"] = float(accelerator.reduce(self.nll, "sum")) / tokens
            readings["target_tokens"] = tokens
            readings["target_tokens_per_second"] = tokens / (now - self._start)
        self._start = now
        self._reset()
        return readings
