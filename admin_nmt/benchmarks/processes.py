"""Measuring in a process of its own. Nothing here loads torch: the process has yet to be told to do so quietly."""

import logging
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def alone(function: Callable, *arguments: Any) -> Any:
    """Call a function in a process of its own: settings of the memory allocator outlive a trainer."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=quiet) as pool:
        return pool.submit(function, *arguments).result()


def quiet() -> None:
    """Say nothing on stdout, where trainers report, and nothing of kernels for other processors."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)
