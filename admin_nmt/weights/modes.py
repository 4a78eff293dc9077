"""Training and evaluation mode for the length of a `with` block; afterwards the model is in the mode it was in."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import nn


def training_mode(model: nn.Module) -> AbstractContextManager[None]:
    """With dropout."""
    return _mode(model, True)


def evaluation_mode(model: nn.Module) -> AbstractContextManager[None]:
    """Without dropout."""
    return _mode(model, False)


@contextmanager
def _mode(model: nn.Module, training: bool) -> Iterator[None]:
    others = [module for module in model.modules() if module.training != training]
    try:
        if others:  # else other threads may run the model meanwhile, which `train` would disturb
            model.train(training)
        yield
    finally:
        for module in others:
            module.training = not training
