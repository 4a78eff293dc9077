"""Several processes: starting them, one voice, and the few collective operations, no-ops in a single process."""

import os
from datetime import timedelta
from typing import TypeVar

import psutil
import torch
import torch.distributed as dist
from accelerate import PartialState
from torch import Tensor
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.tensor import DTensor

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


def gather_shards(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all processes; collective where it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def start_processes() -> None:
    """Join the other processes, with patience: preparing a large corpus takes one of them hours."""
    PartialState(cpu=not torch.accelerator.is_available(), timeout=timedelta(days=1))


def leave_busy_cores() -> None:
    """Compute on as many threads as cores are free, at least one, unless OMP_NUM_THREADS or a GPU makes it needless.

    The threads of a product wait for the slowest of them, which other programs hold up. Another number of threads may
    round differently.
    """
    threads = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ or torch.accelerator.is_available() or threads == 1:
        return
    free = max(1, round(threads * (1 - psutil.cpu_percent(interval=0.5) / 100)))
    if free < threads:
        torch.set_num_threads(free)
        print_once(f"      other programs compute here: {free} of {threads} threads; OMP_NUM_THREADS sets their number")


def wait_at_most(limit: timedelta) -> None:
    """From now on, waiting longer than this for another process is an error that ends the run."""
    if dist.is_available() and dist.is_initialized():
        _set_pg_timeout(limit)


def print_once(message: str) -> None:
    """Print once, however many processes there are."""
    if PartialState().is_main_process:
        print(message, flush=True)
