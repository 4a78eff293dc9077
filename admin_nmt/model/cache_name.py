"""The two names of the cache, until the oldest supported transformers is 5.24, which renamed it.

Before, arguments and outputs of models were called `past_key_values`; since then they are `cache`, as everywhere here.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from transformers.modeling_outputs import Seq2SeqModelOutput

CACHE = "cache" if "cache" in Seq2SeqModelOutput.__dataclass_fields__ else "past_key_values"


def accepts_past_key_values(forward: Callable) -> Callable:
    """Let a `forward` with an argument `cache` be called with the older name too."""

    @wraps(forward)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        if "past_key_values" in kwargs:
            kwargs["cache"] = kwargs.pop("past_key_values")
        return forward(*args, **kwargs)

    return renamed
