"""The device that a caller names, or else the best there is."""

import torch


def checked_device(name: str | torch.device | None) -> torch.device:
    """That device, or a GPU if there is one, else the CPU.

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
