"""Another attention function for the decoder of a model, seen by one thread or task alone.

The threads of a process share a model, so a search may not change what the attention of the others is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import Lock
from typing import Any, TypeVar

from transformers import PreTrainedConfig, PreTrainedModel

T = TypeVar("T")
SWITCHABLE_MODELS = {"admin", "marian", "pegasus"}  # attend through the attention interface, masks of four dimensions

# The attention function of the code that runs, if it is another than the model's: each thread and task has its own.
_function: ContextVar[str | None] = ContextVar("attention function", default=None)
_changing_modules = Lock()


class SwitchableConfig:
    """What attention modules have for a configuration meanwhile: it names the function to those alone who switched."""

    def __init__(self, config: PreTrainedConfig) -> None:
        self.config = config
        self.users = 0

    @property
    def _attn_implementation(self) -> str | None:
        return _function.get() or self.config._attn_implementation

    def __getattr__(self, name: str) -> Any:
        return getattr(self.config, name)

    def __reduce__(self) -> tuple:
        return SwitchableConfig, (self.config,)


@contextmanager
def _switchable(model: PreTrainedModel) -> Iterator[None]:
    """The decoder's attention asks for the function in this block; the last to leave cleans up."""
    modules: list[Any] = [
        module
        for module in model.get_decoder().modules()
        if "config" in vars(module) and not isinstance(module, PreTrainedModel)
    ]
    entered = []
    try:
        with _changing_modules:
            for module in modules:
                if not isinstance(module.config, SwitchableConfig):
                    module.config = SwitchableConfig(module.config)
                module.config.users += 1
                entered.append(module)
        yield
    finally:
        with _changing_modules:
            for module in entered:
                module.config.users -= 1
                if not module.config.users:
                    module.config = module.config.config


def with_attention(function: str, model: PreTrainedModel, run: Callable[[], T]) -> T:
    """What `run` returns where the decoder of `model` attends by a registered `function`."""

    def switched() -> T:
        _function.set(function)
        return run()

    with _switchable(model):
        # In a context of its own, which ends with `run` even where that fails or is interrupted.
        return copy_context().run(switched)
