"""Copies of a stack of layers over the same weights that attend by another function.

The model itself stays as it is, for whoever holds it: other threads that search with it, a trainer, the user.
"""

import copy
from typing import Any, TypeVar

from torch import nn
from transformers import PreTrainedModel

M = TypeVar("M", bound=nn.Module)
# They attend through transformers' attention interface, by masks of four dimensions if those are given.
SWITCHABLE_MODELS = {"admin", "marian", "pegasus"}


def with_attention(module: M, function: str) -> M:
    """A copy of a stack of layers that attends by a registered function.

    Its parameters, buffers and hooks are those of the original, as in replicas of `nn.DataParallel`.
    """
    copies: dict[int, Any] = {}
    configs: dict[int, Any] = {}

    def copied(original: nn.Module) -> nn.Module:
        if id(original) in copies:
            return copies[id(original)]
        one: Any = object.__new__(type(original))  # FSDP2's classes have a `__new__` that begins anew
        vars(one).update(vars(original), _compiled_call_impl=None)  # the compiled call is the original's
        vars(one)["_modules"] = {name: child and copied(child) for name, child in original._modules.items()}
        if "config" in vars(one) and not isinstance(one, PreTrainedModel):  # whose own configuration is about masks
            if id(one.config) not in configs:
                configs[id(one.config)] = copy.copy(one.config)
                configs[id(one.config)]._attn_implementation = function
            one.config = configs[id(one.config)]
        copies[id(original)] = one
        return one

    return copied(module)  # type: ignore[return-value]


def is_switchable(model: PreTrainedModel) -> bool:
    """Tell whether the attention of a model's decoder can be another function.

    It cannot where another library has put a `forward` of its own into a module, as accelerate's hooks do: that one
    runs the original modules.
    """
    decoder: Any = model.get_decoder()
    return model.config.model_type in SWITCHABLE_MODELS and not any("forward" in vars(one) for one in decoder.modules())
