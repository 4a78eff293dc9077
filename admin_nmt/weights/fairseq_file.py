"""Read the file of a fairseq checkpoint without running anything it names, and without fairseq."""

import argparse
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.serialization import safe_globals

SCALAR = (str, int, float, type(None))


class CheckpointFileError(ValueError):
    """The file is not a fairseq checkpoint, is damaged, would run code or would swell; the message says which."""


class Meter:
    """Stands for fairseq's statistics of a training, which nothing here reads."""


METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter", "MetersDict")
# What a checkpoint of fairseq names beyond torch's own; scalars of numpy are among its statistics.
SAFE: list[Any] = [
    argparse.Namespace,
    *((Meter, f"{module}.{name}") for module in ("fairseq.meters", "fairseq.logging.meters") for name in METERS),
    *((np.float64(0).__reduce__()[0], f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float32", "float64", "int64")),
]


def read_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The parameters and the training arguments of a fairseq checkpoint, also of an averaged one.

    Raises:
        CheckpointFileError: see there.
        OSError: the file cannot be read.
    """
    checkpoint = _load(path)
    if not isinstance(checkpoint, Mapping) or "model" not in checkpoint:
        found = ", ".join(map(str, checkpoint)) if isinstance(checkpoint, Mapping) else type(checkpoint).__name__
        raise CheckpointFileError(f"{path}: has no entry 'model' (but {found}), so it is no checkpoint of fairseq")
    state = checkpoint["model"]
    if not isinstance(state, Mapping) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise CheckpointFileError(f"{path}: its entry 'model' is not a dictionary of tensors")
    _check_sizes(path, state)
    args = _arguments(checkpoint)
    if not args:
        raise CheckpointFileError(
            f"{path}: has neither 'args' nor 'cfg' with the model's settings; give the checkpoint that fairseq wrote"
        )
    return dict(state), args


def _arguments(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Flat arguments: `args`, or of newer versions those of the model, the task and the criterion in `cfg`.

    Those that are neither scalars nor lists of them are left out.
    """
    settings = _settings(checkpoint.get("args")) or _settings_of_cfg(checkpoint)
    return {name: value for name, value in settings.items() if _is_flat(value)}


def _settings_of_cfg(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    cfg = _settings(checkpoint.get("cfg"))
    model = _settings(cfg.get("model"))
    for stack in ("encoder", "decoder"):
        model |= {f"{stack}_{name}": value for name, value in _settings(model.pop(stack, None)).items()}
    return _settings(cfg.get("criterion")) | _settings(cfg.get("task")) | model if model else {}


def _is_flat(value: Any) -> bool:
    return isinstance(value, SCALAR) or (isinstance(value, list) and all(isinstance(item, SCALAR) for item in value))


def _settings(value: Any) -> dict[str, Any]:
    if isinstance(value, argparse.Namespace):
        return dict(vars(value))
    return dict(value) if isinstance(value, Mapping) else {}


def _load(path: str | Path) -> Any:
    """Load what `torch.save` wrote, on the CPU, with torch's unpickler of data alone.

    No tensor is larger than its part of the file.

    Raises:
        CheckpointFileError: the file names what could run code, is damaged, or would swell.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        try:
            if zipfile.is_zipfile(file):
                records = zipfile.ZipFile(file).infolist()
                if sum(record.file_size for record in records) > Path(path).stat().st_size:
                    raise CheckpointFileError("refused: its records are larger than the file")
            file.seek(0)
            with safe_globals(SAFE):
                return torch.load(file, map_location="cpu", weights_only=True)
        except CheckpointFileError as error:
            raise CheckpointFileError(f"{path}: {error}") from error
        except Exception as error:  # parsers of damaged data raise whatever they run into
            if name := re.search(r"GLOBAL (\w+(?:\.\w+)+)", str(error)):
                raise CheckpointFileError(
                    f"{path}: refused: unpickling it would call {name[1]}, which may run any code"
                ) from error
            raise CheckpointFileError(
                f"{path}: is damaged, cut off or no checkpoint of torch; copy it again"
            ) from error


def _check_sizes(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that repeat the elements of their storage, and storages that are larger than the file."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors.values()}
    if sum(storages.values()) > Path(path).stat().st_size:
        raise CheckpointFileError(f"{path}: refused: its tensors are larger than the file")
    for name, tensor in tensors.items():
        if tensor.nbytes > tensor.untyped_storage().nbytes():
            raise CheckpointFileError(f"{path}: refused: {name} is larger than its part of the file")


__all__ = ["CheckpointFileError", "read_checkpoint"]
