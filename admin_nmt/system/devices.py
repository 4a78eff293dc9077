"""Devices, and which kernels of attention a GPU may take."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def checked_device(name: str | torch.device | None) -> torch.device:
    """Device of a name; without a name a GPU if there is one, else the CPU.

    Raises:
        ValueError: it is not there.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"there is no device '{name}' here") from error


def cpu_or_gpu(name: str | torch.device | None, gpus: int) -> torch.device:
    """As [`checked_device`] for a library other than torch, which sees so many GPUs and knows no other devices.

    Raises:
        ValueError: it is not there.
    """
    there = {"cpu", "cpu:0", *(["cuda"] if gpus else []), *(f"cuda:{index}" for index in range(gpus))}
    device = str(name or ("cuda" if gpus else "cpu"))
    if device not in there:
        raise ValueError(f"there is no device '{name}' here")
    return torch.device(device)


def leave_out_cudnn_attention() -> None:
    """Keep this process from computing attention by cuDNN, which PyTorch prefers on the newest GPUs.

    cuDNN builds a plan for every shape that it has not seen, and batches under a token budget come in a hundred shapes;
    the kernels that remain, flash and memory-efficient attention, need none.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


@contextmanager
def without_cudnn_attention(device: torch.device) -> Iterator[None]:
    """Leave out cuDNN's attention while the context is open, if the device is a GPU; the setting is the process's."""
    if device.type != "cuda" or not torch.backends.cuda.cudnn_sdp_enabled():
        yield
        return
    leave_out_cudnn_attention()
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
