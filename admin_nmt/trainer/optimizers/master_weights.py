"""Training in bfloat16 with float32 master weights, without autocast's casts."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

# Batches of an update: a sum in bfloat16 of so many random gradients is off by 0.5 %, of one by 0.2 %, and from 256
# equal ones on it no longer grows.
MOST_ACCUMULATED = 16


class NoMasterWeights:
    """A model that is trained in its own precision."""

    def training(self, optimizer: Any) -> AbstractContextManager[None]:
        """Open while an optimizer trains the model."""
        return nullcontext()

    def in_float32(self) -> AbstractContextManager[None]:
        """The modules have float32 parameters in this block, which may change them: a file's weights, say."""
        return nullcontext()


class MasterWeights(NoMasterWeights):
    """The float32 parameters of a model whose modules compute with bfloat16 copies of them.

    The optimizer is any that was made of the float32 parameters, so that its state and the checkpoints are those of a
    training in float32. Before its step it is given the gradients of the copies, and after it the copies are made anew,
    each by one list of kernels.

    Args:
        model: its buffers, such as a constant ω, stay as they are.

    Raises:
        ValueError: a parameter is not float32.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.masters: list[Tensor] = list(model.parameters())
        for name, parameter in model.named_parameters():
            if parameter.dtype != torch.float32:
                raise ValueError(f"master_weights: {name} is {parameter.dtype}; load the model with dtype float32")
        self.copies: list[Tensor] = [
            nn.Parameter(p.detach().bfloat16(), requires_grad=p.requires_grad) for p in self.masters
        ]
        copy_of = dict(zip(self.masters, self.copies, strict=True))
        self.places = [
            (module, name, parameter, copy_of[parameter])
            for module in model.modules()
            for name, parameter in module.named_parameters(recurse=False)
        ]
        self.in_use = False  # whether the modules have the copies

    @contextmanager
    def training(self, optimizer: Any) -> Iterator[None]:
        """The modules compute with the copies in this block, and the optimizer updates both."""
        optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper runs no hooks
        hooks = [
            optimizer.register_step_pre_hook(lambda *_: self.hand_over_gradients()),
            optimizer.register_step_post_hook(lambda *_: self.round()),
        ]
        self.use_copies(True)
        try:
            yield
        finally:
            self.use_copies(False)
            for hook in hooks:
                hook.remove()
            for tensor in (*self.masters, *self.copies):
                tensor.grad = None

    @contextmanager
    def in_float32(self) -> Iterator[None]:
        before = self.in_use
        self.use_copies(False)
        try:
            yield
        finally:
            if before:
                self.use_copies(True)

    def use_copies(self, wanted: bool) -> None:
        """Gives the modules the copies, made anew, or the float32 parameters.

        The tensors of neither are exchanged: DDP would no longer be told of their gradients.
        """
        if wanted:
            self.round()
        for module, name, master, copy in self.places:
            setattr(module, name, copy if wanted else master)
        self.in_use = wanted

    @torch.no_grad()
    def round(self) -> None:
        """Makes the copies anew."""
        torch._foreach_copy_(self.copies, self.masters)

    def hand_over_gradients(self) -> None:
        """Gives the float32 parameters the gradients of their copies."""
        found, given = [], []
        for master, copy in zip(self.masters, self.copies, strict=True):
            if copy.grad is None:
                master.grad = None
                continue
            if master.grad is None:
                master.grad = torch.empty_like(master)
            found.append(copy.grad)
            given.append(master.grad)
        if found:
            torch._foreach_copy_(given, found)


def norm_in_float32(gradients: list[Tensor]) -> Tensor:
    """The norm of all entries, which a list of kernels sums in float32, whatever the type of the gradients."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2, torch.float32)))
