"""Memory of a process that trains: the settings of its allocators, and the most that it has used."""

import ctypes
import os
import platform
import sys
from contextlib import suppress

import torch

with suppress(ImportError):  # Windows has none
    import resource

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # <malloc.h>
LARGEST_INT = 2**31 - 1
TOP_PAD_BYTES = 64 * 2**20


def keep_freed_memory() -> bool:
    """Makes glibc's malloc reuse freed blocks of any size for the rest of this process.

    By default glibc gives every large block back to the system when it is freed, and the next tensor pays a page
    fault for every 4 KiB that it writes. Training frees and allocates the same large tensors at every update.

    Returns:
        True if the allocator took the settings; False where it is not glibc's.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = {M_MMAP_THRESHOLD: LARGEST_INT, M_TRIM_THRESHOLD: LARGEST_INT, M_TOP_PAD: TOP_PAD_BYTES}
    taken = [mallopt(parameter, value) == 1 for parameter, value in settings.items()]
    return all(taken)


def let_segments_grow() -> None:
    """Lets CUDA's allocator extend its segments, unless the environment says how it is to work; before CUDA starts.

    Batches come in a hundred shapes, and blocks of one shape are of little use to the next.
    """
    if sys.platform == "linux" and not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"


def peak_memory(device: torch.device) -> int:
    """Bytes: of the GPU's tensors, or of the whole process on a CPU; 0 where the system does not tell (Windows)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
