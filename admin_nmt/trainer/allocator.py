"""How the memory of a process that trains is allocated, by its device."""

import os
import sys

from ..system.freed_memory import keep_freed_memory as keep_freed_memory


def let_segments_grow() -> None:
    """Lets CUDA's allocator extend its segments, unless the environment says how it is to work; before CUDA starts.

    Batches come in a hundred shapes, and blocks of one shape are of little use to the next.
    """
    if sys.platform == "linux" and not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
