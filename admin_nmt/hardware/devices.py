"""The device that a caller names."""

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
