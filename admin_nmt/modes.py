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
    was_training = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(was_training)
