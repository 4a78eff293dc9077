"""Errors that the user can mend, told in one line; any other is a bug and keeps its traceback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path
from pickle import UnpicklingError

# Their modules take long to load, and one that is not loaded has raised nothing.
_CLASSES = (
    ("safetensors", "SafetensorError"),
    ("huggingface_hub.errors", "StrictDataclassError"),
    ("huggingface_hub.errors", "HfHubHTTPError"),
    ("torch", "OutOfMemoryError"),
    ("admin_nmt.trainer.divergence", "DivergedError"),
)


class ForeignCodeError(ValueError):
    """A model or tokenizer cannot be loaded without running Python code that came with it."""


@contextmanager
def refusing_code(source: str | Path) -> Iterator[None]:
    """Around loading with `trust_remote_code=False`: tells the refusals of transformers and torch as one sentence.

    Without that argument transformers asks on stdin, where a text to translate can answer.

    Raises:
        ForeignCodeError: naming the folder or repository, which needs code, or whose weights could hold some.
    """
    try:
        yield
    except UnpicklingError as error:
        raise ForeignCodeError(
            f"{source}: its pytorch_model.bin is damaged, or holds more than tensors, which could be code and is never "
            "run; give the weights as safetensors"
        ) from error
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ForeignCodeError(
            f"{source}: needs Python code that comes with it, which admin_nmt never runs; give a model of admin_nmt or "
            "of a class of transformers"
        ) from error


def user_errors() -> tuple[type[BaseException], ...]:
    """The classes of such errors, as far as they are loaded."""
    loaded = [getattr(sys.modules[module], name) for module, name in _CLASSES if module in sys.modules]
    return (ValueError, OSError, ImportError, *loaded)


def _is(error: BaseException, name: str) -> bool:
    """True for an error of one of the classes that may not be loaded."""
    return any(kind.__name__ == name for kind in user_errors() if isinstance(error, kind))


def describe(error: BaseException) -> str:
    """Describe an error in one line."""
    safetensors_full = _is(error, "SafetensorError") and "No space left" in str(error)  # it has no errno
    if safetensors_full or getattr(error, "errno", None) == ENOSPC:
        where = getattr(error, "filename", None)
        full = f"the disk of {where} is full" if where else "the disk is full"
        return f"{full}: make room, or choose another folder, and give the same command again"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if _is(error, "OutOfMemoryError"):
        return "the GPU has too little memory for this batch; lower --batch-tokens, or a recipe's training.max_tokens"
    if _is(error, "StrictDataclassError") and error.__cause__:
        error = error.__cause__
    return " ".join(str(error).split())
