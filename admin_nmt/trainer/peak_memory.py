"""The most memory that this process has used."""

import sys
from contextlib import suppress

import torch

with suppress(ImportError):  # Windows has none
    import resource


def peak_memory(device: torch.device) -> int:
    """Bytes: of the GPU's tensors, or of the whole process on a CPU; 0 where the system does not tell (Windows)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
