"""Averages the weights of several checkpoints of one run."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from ..system.processes import rank_and_size
from ..system.terminal import progress_bar


def average_checkpoints(folders: Sequence[str | Path]) -> dict[str, Tensor]:
    """Mean of the weights of several checkpoints, each one `model.safetensors` or a sharded set with its index.

    Means are taken in float64 and given in the stored type; tensors of integers or booleans must be equal everywhere.
    The weights are read tensor by tensor, so memory holds little more than the result.

    Raises:
        ValueError: no folder is given, a file is missing or damaged, or the tensors of two checkpoints differ in
            name, shape or type.
    """
    if not folders:
        raise ValueError("there is no checkpoint to average; give at least one folder")
    with ExitStack() as stack:
        checkpoints = [_open_tensors(Path(folder), stack) for folder in folders]
        first = checkpoints[0]
        for folder, checkpoint in zip(folders, checkpoints, strict=True):
            if different := sorted(first.keys() ^ checkpoint.keys()):
                raise ValueError(
                    f"{different[0]} is not in both {folders[0]} and {folder}; average checkpoints of one run"
                )
        title, is_main = f"averaging {len(folders)} checkpoints", rank_and_size()[0] == 0
        names = progress_bar(first, desc=title, unit="tensor", shown=is_main)
        return {name: _mean(name, folders, [file[name].get_tensor(name) for file in checkpoints]) for name in names}


def indexed_files(index: Path) -> list[Path]:
    """The files that the index of a sharded set names, which lie beside it.

    Raises:
        ValueError: it is damaged, or names what does not lie beside it.
    """
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        paths = [index.with_name(name) for name in names]  # which refuses separators
        if ".." in names:
            raise ValueError("it names files elsewhere")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index}: does not list the files of the weights ({error}); copy it again") from error
    return paths


def _open_tensors(folder: Path, stack: ExitStack) -> dict[str, Any]:
    """Every tensor name of a checkpoint with the open file that holds it."""
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    paths = indexed_files(index) if index.exists() else [folder / SAFE_WEIGHTS_NAME]
    tensors: dict[str, Any] = {}
    for path in paths:
        try:
            file = stack.enter_context(safe_open(path, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} is missing or damaged ({error}); leave out this checkpoint") from error
        tensors |= dict.fromkeys(file.keys(), file)
    return tensors


def _mean(name: str, folders: Sequence[str | Path], tensors: list[Tensor]) -> Tensor:
    first = tensors[0]
    for folder, tensor in zip(folders, tensors, strict=True):
        is_like = (tensor.shape, tensor.dtype) == (first.shape, first.dtype)
        if not is_like or not (first.is_floating_point() or torch.equal(tensor, first)):
            raise ValueError(
                f"{name} differs between {folders[0]} and {folder} in shape, in type or in integers; average "
                "checkpoints of one run"
            )
    if not first.is_floating_point():
        return first
    total = torch.zeros_like(first, dtype=torch.float64)
    for tensor in tensors:
        total += tensor
    return (total / len(tensors)).to(first.dtype)
