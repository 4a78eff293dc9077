"""Read the file of a fairseq checkpoint without running anything it names, and without fairseq."""

import argparse
import io
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from .inert_pickle import InertUnpickler, Named, RefusedPickleError

ZIP_START = b"PK\x03\x04"
CHUNK = 2**24  # bytes that are read at a time
DTYPES = {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
    "Bool": torch.bool, "ComplexFloat": torch.complex64, "ComplexDouble": torch.complex128,
}  # fmt: skip
SCALAR = (str, int, float, type(None))


class CheckpointFileError(ValueError):
    """The file is not a fairseq checkpoint, is damaged, would run code or would swell; the message says which."""


def read_checkpoint(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The parameters and the training arguments of a fairseq checkpoint, also of an averaged one.

    Raises:
        CheckpointFileError: see there.
        OSError: the file cannot be read.
    """
    checkpoint = load_inert(path)
    if not isinstance(checkpoint, Mapping) or "model" not in checkpoint:
        found = ", ".join(map(str, checkpoint)) if isinstance(checkpoint, Mapping) else type(checkpoint).__name__
        raise CheckpointFileError(f"{path}: has no entry 'model' (but {found}), so it is no checkpoint of fairseq")
    state = checkpoint["model"]
    if not isinstance(state, Mapping) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise CheckpointFileError(f"{path}: its entry 'model' is not a dictionary of tensors")
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


def load_inert(path: str | Path) -> Any:
    """What `torch.save` wrote, in the zip or the older format, on the CPU; see [`InertUnpickler`].

    Memory and time are bounded by the size of the file.

    Raises:
        CheckpointFileError: the file names a function or a class that could run code, is damaged, or would swell.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        try:
            zipped = file.read(len(ZIP_START)) == ZIP_START
            file.seek(0)
            return _load_zip(file) if zipped else _load_legacy(file)
        except (CheckpointFileError, RefusedPickleError) as error:
            raise CheckpointFileError(f"{path}: {error}") from error
        except Exception as error:  # parsers of damaged data raise whatever they run into
            raise CheckpointFileError(f"{path}: is damaged or cut off ({error}); copy it again") from error


class Storages:
    """The storages that pickles ask for; they are allocated, within the size of the file, and filled later."""

    def __init__(self, file: IO[bytes]) -> None:
        self.left = _size(file)
        self.elements: dict[str, Tensor] = {}

    def __call__(self, persistent_id: Any) -> Tensor:
        kind, storage_type, key, _, count, *view = persistent_id
        if kind != "storage" or not isinstance(storage_type, Named) or any(view):
            raise ValueError("its pickle names a storage in an unknown way")
        dtype = DTYPES[storage_type.name.rpartition(".")[2].removesuffix("Storage")]
        if key not in self.elements:
            self.left -= count * dtype.itemsize
            if count < 0 or self.left < 0:
                raise ValueError("its tensors are larger than the file")
            self.elements[key] = torch.empty(count, dtype=dtype)
        if (len(self.elements[key]), self.elements[key].dtype) != (count, dtype):
            raise ValueError(f"storage {key} has two sizes or types")
        return self.elements[key]

    def fill(self, key: str, stream: IO[bytes]) -> None:
        """Read the elements of a storage.

        Raises:
            ValueError: the stream has fewer.
        """
        buffer = self.elements[key].view(torch.uint8).numpy().data
        while len(buffer):
            data = stream.read(min(len(buffer), CHUNK))
            if not data:
                raise ValueError(f"storage {key} is not complete")
            buffer[: len(data)] = data
            buffer = buffer[len(data) :]


def _size(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _load_zip(file: IO[bytes]) -> Any:
    """Of `torch.save` since version 1.6: a pickle, and a record for each storage, none of them compressed."""
    with zipfile.ZipFile(file) as archive:
        records = archive.infolist()
        if any(record.filename.endswith("/constants.pkl") for record in records):
            raise CheckpointFileError("is a TorchScript program, not a checkpoint")
        compressed = any(record.compress_type != zipfile.ZIP_STORED for record in records)
        if compressed or sum(record.file_size for record in records) > _size(file):
            raise CheckpointFileError("refused: its records are larger than the file, as torch never saves them")
        (pickle,) = (record for record in records if record.filename.endswith("/data.pkl"))
        folder = pickle.filename.removesuffix("data.pkl")
        order = f"{folder}byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            raise CheckpointFileError("was written by a big-endian machine, which is not supported")
        storages = Storages(file)
        loaded = InertUnpickler(storages).load(io.BytesIO(archive.read(pickle)))
        for key, elements in storages.elements.items():
            if archive.getinfo(f"{folder}data/{key}").file_size != elements.nbytes:
                raise ValueError(f"storage {key} has another size than its record")
            with archive.open(f"{folder}data/{key}") as stream:
                storages.fill(key, stream)
        return loaded


class Bounded:
    """A file that allocates no more for a read than there is left of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.size = file, _size(file)
        self.tell, self.readline = file.tell, file.readline

    def read(self, count: int) -> bytes:
        return self.file.read(min(count, self.size - self.tell()))


def _load_legacy(file: IO[bytes]) -> Any:
    """Of older versions: pickles of a magic number, the protocol, the system, the object and the storages' keys."""
    storages, stream = Storages(file), cast(IO[bytes], Bounded(file))
    pickles = InertUnpickler(storages)
    try:
        magic = pickles.load(stream)
    except RefusedPickleError:
        raise
    except Exception as error:
        raise CheckpointFileError("is no checkpoint of torch") from error
    if magic != torch.serialization.MAGIC_NUMBER:
        raise CheckpointFileError("is no checkpoint of torch")
    _, system, loaded, keys = (pickles.load(stream) for _ in range(4))
    if not system.get("little_endian", True):
        raise CheckpointFileError("was written by a big-endian machine, which is not supported")
    for key in keys:
        count = int.from_bytes(stream.read(8), "little")
        if count != len(storages.elements[key]):
            raise ValueError(f"storage {key} is not complete")
        storages.fill(key, stream)
    if set(keys) != set(storages.elements):
        raise ValueError("a storage is missing")
    return loaded


__all__ = ["CheckpointFileError", "load_inert", "read_checkpoint"]
