"""Loading without Python's search for garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Switch Python's garbage collection off during imports and the loading of a model, of which nothing is garbage.

    It would go over millions of objects, several times while they are made and again at the end of the program: a fifth
    of the time from launch to translation.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.freeze()  # leaves what is there by now out of later collections
            gc.enable()
