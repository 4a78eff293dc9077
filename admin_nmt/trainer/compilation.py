"""Compiled layers: few graphs, whatever the depth of the model and the shapes of its batches."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

BACKEND = "inductor"  # of torch.compile


@contextmanager
def compiled_layers(model: nn.Module, backend: str | Callable | None = None) -> Iterator[None]:
    """The layers of a model are compiled in this block, for batches of any shape, and the rest of it is not.

    The layers of a stack have the same code, so that one graph serves all of them; `torch.compile` of the whole model
    takes a time that grows with its depth, and its loss has the logits of the whole batch.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        layer.compile(backend=backend or BACKEND, dynamic=True)
    try:
        yield
    finally:
        for layer in layers:
            layer._compiled_call_impl = None


def without_compilation() -> AbstractContextManager[None]:
    """No layer runs its compiled form in this block: an evaluation's caches would be compiled anew at every length."""
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance
