"""The few collective operations that evaluation and generation need, no-ops in a single process."""

from typing import TypeVar

import torch.distributed as dist

T = TypeVar("T")


def rank_and_size() -> tuple[int, int]:
    """This process's rank and the number of processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def gather_objects(value: T) -> list[T]:
    """The `value` of every process, in the order of ranks, on every process."""
    size = rank_and_size()[1]
    if size == 1:
        return [value]
    gathered: list[T] = [value] * size
    dist.all_gather_object(gathered, value)
    return gathered
