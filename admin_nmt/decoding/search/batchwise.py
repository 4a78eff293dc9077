"""One skeleton for whatever a model computes of many sentences: batches of similar length, shared among processes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn

from ...data.batching import generation_batches
from ...system.devices import without_cudnn_attention
from ...system.processes import gather_objects, rank_and_size
from ...system.terminal import progress_bar
from ...weights.evaluation_mode import evaluation_mode

T = TypeVar("T")


def batchwise(
    model: nn.Module,
    lengths: Sequence[int],
    compute: Callable[[list[int]], Sequence[T]],
    *,
    max_tokens: int,
    progress: bool,
    desc: str,
    unit: str,
) -> list[T]:
    """Compute something for every sentence, in their order, on every process; the model is in evaluation mode.

    Args:
        lengths: tokens of every sentence, which batches are made by.
        compute: maps the indices of a batch to one result each, without gradients; every process calls it for its
            share of the batches.
        max_tokens: budget of a batch: sentences times the longest.
        progress: show a progress bar on the first process; desc, unit: what it calls the work and a sentence.
    """
    rank, size = rank_and_size()
    batches = [batch.tolist() for batch in generation_batches(lengths, max_tokens)[rank::size]]
    results: dict[int, T] = {}
    device: Any = model.device
    bar = progress_bar(total=sum(map(len, batches)), desc=desc, unit=unit, shown=progress and rank == 0)
    with evaluation_mode(model), without_cudnn_attention(device), bar:
        for batch in batches:
            results.update(zip(batch, compute(batch), strict=True))
            bar.update(len(batch))
    merged = {index: result for part in gather_objects(results) for index, result in part.items()}
    return [merged[index] for index in range(len(lengths))]
