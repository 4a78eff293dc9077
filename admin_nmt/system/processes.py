"""Several processes: starting them, one voice, and the few collective operations, no-ops in a single process."""

from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch.distributed.distributed_c10d import _set_pg_timeout

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


def start_processes() -> None:
    """Join the other processes, with patience: preparing a large corpus takes one of them hours."""
    PartialState(cpu=not torch.accelerator.is_available(), timeout=timedelta(days=1))


def wait_at_most(limit: timedelta) -> None:
    """From now on, waiting longer than this for another process is an error that ends the run."""
    if dist.is_available() and dist.is_initialized():
        _set_pg_timeout(limit)


def print_once(message: str) -> None:
    """Print once, however many processes there are."""
    if PartialState().is_main_process:
        print(message, flush=True)
