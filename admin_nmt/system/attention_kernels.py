"""Which kernels of attention PyTorch may take on a GPU.

cuDNN, which PyTorch prefers on the newest GPUs, builds a plan for every shape that it has not seen, and batches under a
token budget come in a hundred shapes; the kernels that remain, flash and memory-efficient attention, need none.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def leave_out_cudnn_attention() -> None:
    """Keeps this process from computing attention by cuDNN."""
    torch.backends.cuda.enable_cudnn_sdp(False)


@contextmanager
def without_cudnn_attention(device: torch.device) -> Iterator[None]:
    """Keeps cuDNN from it while the context is open, if the device is a GPU; the setting is that of the process."""
    if device.type != "cuda" or not torch.backends.cuda.cudnn_sdp_enabled():
        yield
        return
    leave_out_cudnn_attention()
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
