"""Evaluation mode for the length of a `with` block."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Run a model without dropout; afterwards each of its modules is in the mode it was in."""
    training = [module for module in model.modules() if module.training]
    try:
        if training:  # else other threads may run the model meanwhile, which `eval` would disturb
            model.eval()
        yield
    finally:
        for module in training:
            module.training = True
