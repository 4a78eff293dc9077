"""One skeleton for whatever a model computes of many sentences: batches of similar length, shared among processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar, cast

import torch
from torch import nn

from ...data.batching import generation_batches
from ...system.devices import without_cudnn_attention
from ...system.processes import gather_objects, rank_and_size
from ...system.terminal import progress_bar
from ...weights.modes import evaluation_mode

T = TypeVar("T")
WIDE = 512  # the width from which a batch keeps all cores busy
Compute = Callable[[list[int]], Sequence[T]]

_cores = Lock()  # held by the call that has shared the cores out


def batchwise(
    model: nn.Module,
    lengths: Sequence[int],
    compute: Compute[T],
    *,
    max_tokens: int,
    progress: bool,
    desc: str,
    unit: str,
) -> list[T]:
    """Compute something for every sentence, in their order, on every process; the model is in evaluation mode.

    On a CPU a model narrower than `WIDE` computes a batch on each thread: its products are too small to be shared.

    Args:
        lengths: tokens of every sentence, which batches are made by.
        compute: maps the indices of a batch to one result each, without gradients, perhaps in several threads at a
            time; every process calls it for its share of the batches.
        max_tokens: budget of a batch: sentences times the longest.
        progress: show a progress bar on the first process; desc, unit: what it calls the work and a sentence.
    """
    rank, size = rank_and_size()
    batches = [batch.tolist() for batch in generation_batches(lengths, max_tokens)[rank::size]]
    results: dict[int, T] = {}
    bar = progress_bar(total=sum(map(len, batches)), desc=desc, unit=unit, shown=progress and rank == 0)
    at_a_time, device = min(_threads(model), len(batches)), cast("torch.device", model.device)
    with evaluation_mode(model), without_cudnn_attention(device), bar, _side_by_side(at_a_time) as each:
        if each is not map:  # the one that takes longest begins
            batches.sort(key=len, reverse=True)
        for batch, computed in zip(batches, each(compute, batches), strict=True):
            results.update(zip(batch, computed, strict=True))
            bar.update(len(batch))
    merged = {index: result for part in gather_objects(results) for index, result in part.items()}
    return [merged[index] for index in range(len(lengths))]


def _threads(model: Any) -> int:
    """Number of batches that a model should compute at a time."""
    narrow = getattr(model.config, "d_model", WIDE) < WIDE
    return torch.get_num_threads() if narrow and model.device.type == "cpu" else 1


@contextmanager
def _side_by_side(threads: int) -> Iterator[Callable[[Compute[T], Sequence[list[int]]], Iterable[Sequence[T]]]]:
    """A `map` that computes so many batches at a time, each on one core; the plain one if others have shared them out.

    The results come in the order of the batches, so what is done is told late, but by no more than a few batches.
    """
    if threads < 2 or not _cores.acquire(blocking=False):
        yield map
        return
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads, "batch", _on_one_core)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # that of threads to come
        _cores.release()


def _on_one_core() -> None:
    """Holds for the thread that calls it."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
