"""Time of training updates and the tokens in them, on a device that may still be computing when Python goes on."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has computed all that it was given; a CPU has by then."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Stopwatch(TrainerCallback):
    """Seconds from the first update behind the warm-up to the end of the last one, and what they trained on.

    Args:
        trainer: whose updates are measured; nothing else of it changes.
        warm_up: updates before the measured ones: the first ones of a GPU load kernels and choose algorithms.

    Attributes:
        first_seconds: of the warm-up.
        seconds: of the measured updates.
        shapes: (sentences, source positions, target positions) of each measured batch.
    """

    def __init__(self, trainer: Trainer, warm_up: int = 0) -> None:
        self.device, self.warm_up = trainer.args.device, warm_up
        self.first_seconds, self.seconds = 0.0, 0.0
        self.shapes: list[tuple[int, int, int]] = []
        self._start: float | None = None
        self._updates = 0
        self._tokens: list[Tensor] = []
        any_trainer: Any = trainer
        any_trainer.training_step = self._counting(trainer.training_step)
        trainer.add_callback(self)

    def _counting(self, step: Callable) -> Callable:
        """Counted where the updates are, as loader processes prepare more batches than are trained on."""

        def counting(model: Any, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Tensor:
            if self._updates >= self.warm_up:
                labels = inputs["labels"]
                self.shapes.append((*inputs["input_ids"].shape, labels.shape[1]))
                self._tokens.append((labels >= 0).sum())
            return step(model, inputs, *args, **kwargs)

        return counting

    @property
    def tokens(self) -> int:
        """Target tokens of the measured updates that are not padding."""
        return sum(int(count) for count in self._tokens)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._updates = state.global_step
        if self._start is None or state.global_step == self.warm_up:
            now = self._now()
            self.first_seconds = now - (self._start or now)
            self._start = now

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == state.max_steps and self._start is not None:
            self.seconds = self._now() - self._start

    def _now(self) -> float:
        synchronize(self.device)
        return time.perf_counter()
