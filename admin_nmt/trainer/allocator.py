"""Settings of a process that trains, by its device: how memory is allocated, and which kernels of attention run."""

import os
import sys

import torch

from ..hardware.freed_memory import keep_freed_memory as keep_freed_memory


def let_segments_grow() -> None:
    """Lets CUDA's allocator extend its segments, unless the environment says how it is to work; before CUDA starts.

    Batches come in a hundred shapes, and blocks of one shape are of little use to the next.
    """
    if sys.platform == "linux" and not {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} & os.environ.keys():
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"


def leave_out_cudnn_attention() -> None:
    """Keeps PyTorch from computing attention by cuDNN, which it prefers on the newest GPUs.

    cuDNN builds a plan for every shape that it has not seen, and batches under a token budget come in a hundred shapes;
    the kernels that remain, flash and memory-efficient attention, need none.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
