"""Read the file of a fairseq checkpoint without running anything it names, and without fairseq."""

import argparse
import pickletools
import re
import sys
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

# What tensors and plain containers are made of; torch checks the same again when it loads.
DATA = re.compile(
    r"argparse\.Namespace|collections\.(OrderedDict|Counter)|builtins\.(set|bytearray|complex)"
    r"|_codecs\.encode|torch(\.cuda|\.storage)?\.\w+Storage|torch\._utils\._rebuild_(tensor|tensor_v2|parameter)"
    r"|torch\.(Size|Tensor|device|nn\.parameter\.Parameter|u?int\d+|b?float\d+|bool)"
)
# Functions that make the scalars of numpy in fairseq's statistics, which nothing here reads.
NUMPY = re.compile(r"numpy\.(dtype|ndarray|_?core\.multiarray\.(scalar|_reconstruct))")
ZIP_START = b"PK\x03\x04"
LEGACY_PICKLES = 4  # magic number, protocol, system, the object; then the storages


class CheckpointFileError(ValueError):
    """The file is not a fairseq checkpoint, is damaged, or would run code; the message says which."""


class Inert:
    """Stands for an instance of any class that is not needed: it takes every state and does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __new__(cls, *args: Any, **kwargs: Any) -> "Inert":
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        pass


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
    """Flat arguments: `args`, or of newer versions those of the model, the task and the criterion in `cfg`."""
    if args := _settings(checkpoint.get("args")):
        return args
    cfg = _settings(checkpoint.get("cfg"))
    model = _settings(cfg.get("model"))
    for stack in ("encoder", "decoder"):
        model |= {f"{stack}_{name}": value for name, value in _settings(model.pop(stack, None)).items()}
    return _settings(cfg.get("criterion")) | _settings(cfg.get("task")) | model if model else {}


def _settings(value: Any) -> dict[str, Any]:
    if isinstance(value, argparse.Namespace):
        return dict(vars(value))
    return dict(value) if isinstance(value, Mapping) else {}


def load_inert(path: str | Path) -> Any:
    """Unpickle what `torch.save` wrote, in the zip or the older format, on the CPU.

    Tensors, containers and `argparse.Namespace` come out as they are; instances of unknown classes become [`Inert`].
    Everything runs in torch's restricted unpickler, which calls nothing else.

    Raises:
        CheckpointFileError: the file names a function or a class that could run code, or is damaged.
    """
    with Path(path).open("rb") as file:
        try:
            names = {name for stream in _pickles(file) for name in _globals(stream)}
        except CheckpointFileError as error:
            raise CheckpointFileError(f"{path}: {error}") from error
        except Exception as error:  # parsers of damaged data raise whatever they run into
            raise CheckpointFileError(f"{path}: is damaged or cut off ({error}); copy it again") from error
    unknown = sorted(name for name in names if not DATA.fullmatch(name))
    if unsafe := [name for name in unknown if not _is_inert_class(name)]:
        raise CheckpointFileError(f"{path}: refused: unpickling it would call {unsafe[0]}, which can run any code")
    stubs: list[Any] = [(Inert, name) for name in unknown]
    try:
        with torch.serialization.safe_globals([argparse.Namespace, *stubs]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).split("\n")[-1]
        raise CheckpointFileError(f"{path}: is damaged or cut off ({reason}); copy it again") from error


def _is_inert_class(name: str) -> bool:
    """Whether it looks like a class of some package: functions are called, and the standard library runs programs."""
    if NUMPY.fullmatch(name):
        return True
    package, last = name.split(".")[0], name.split(".")[-1]
    return package not in sys.stdlib_module_names and package != "torch" and last[:1].isupper()


def _pickles(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Streams at whose position a pickle starts."""
    if file.read(len(ZIP_START)) == ZIP_START:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            if any(name.endswith("/constants.pkl") for name in names):
                raise CheckpointFileError("is a TorchScript program, not a checkpoint")
            for name in names:
                if name.endswith("/data.pkl"):
                    with archive.open(name) as stream:
                        yield stream
        return
    file.seek(0)
    first = [argument for _, argument, _ in _opcodes(file, "is no checkpoint of torch")]
    if torch.serialization.MAGIC_NUMBER not in first:
        raise CheckpointFileError("is no checkpoint of torch")
    for _ in range(LEGACY_PICKLES - 1):
        yield file


def _opcodes(file: IO[bytes], otherwise: str) -> list[tuple[Any, Any, Any]]:
    try:
        return list(pickletools.genops(file))
    except ValueError as error:
        raise CheckpointFileError(otherwise) from error


def _globals(stream: IO[bytes]) -> Iterator[str]:
    """Every global that a pickle names, as `module.name`."""
    strings = ["", ""]
    for opcode, argument, _ in pickletools.genops(stream):
        if opcode.name in ("GLOBAL", "INST"):
            module, name = str(argument).split(" ", 1)
            # Protocol 2 has the names of Python 2, where subprocess is called commands.
            module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
            yield f"{module}.{name}"
        elif opcode.name == "STACK_GLOBAL":  # torch's unpickler refuses it; here its name is for the message
            yield ".".join(strings)
        elif isinstance(argument, str):
            strings = [strings[1], argument]


__all__ = ["CheckpointFileError", "load_inert", "read_checkpoint"]
