"""Folders and pickles that try to run code, whose canary is a file that it would write; and pickles that swell."""

import builtins
import importlib
import io
import json
import os
import pickle
import random
import shutil
import subprocess
import zipfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

FOREIGN = "stranger"  # a model type that nobody knows
CODE = """from pathlib import Path

Path({marker!r}).write_text("ran")

from transformers import PretrainedConfig


class Config(PretrainedConfig):
    model_type = "stranger"


class Model:
    pass


class Tokenizer:
    pass


def generate(*args, **kwargs):
    pass
"""


class Call:
    """Calls a function when it is unpickled."""

    def __init__(self, function: Callable, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable, tuple]:
        return self.call


def calls(marker: Path) -> dict[str, Call]:
    """Calls that write the canary, or would run its file as Python, by the name that a refusal tells."""
    touch = f"touch {marker}"
    return {
        f"{os.system.__module__}.system": Call(os.system, touch),
        "builtins.eval": Call(eval, f"__import__('os').system('{touch}')"),
        "builtins.exec": Call(exec, f"open('{marker}', 'w')"),
        "io.open": Call(builtins.open, str(marker), "w"),
        "builtins.getattr": Call(getattr, "", "join"),
        "subprocess.run": Call(subprocess.run, ["touch", str(marker)]),
        "importlib.import_module": Call(importlib.import_module, "this"),
        "torch.serialization.load": Call(torch.load, str(marker)),
        "torch.hub.load": Call(torch.hub.load, str(marker.parent), "x", "local"),
    }


def nested(value: Any, draw: random.Random) -> Any:
    """A value somewhere inside containers."""
    containers = [lambda v: [1, v], lambda v: {"x": v}, lambda v: (v, None), lambda v: Namespace(x=v)]
    for _ in range(draw.randrange(4)):
        value = draw.choice(containers)(value)
    return value


def hostile_checkpoint(draw: random.Random, marker: Path) -> tuple[bytes, str]:
    """A file of `torch.save`, or a bare pickle, that calls a function somewhere; and the function's name."""
    name, call = draw.choice(sorted(calls(marker).items(), key=lambda item: item[0]))
    content: dict[str, Any] = {"args": Namespace(arch="transformer"), "model": {"w": torch.ones(2, 2)}}
    content[draw.choice(["args", "model", "extra_state", "cfg"])] = nested(call, draw)
    file, kind = io.BytesIO(), draw.choice(["zip", "legacy", "bare"])
    if kind == "bare":
        return pickle.dumps(nested(call, draw), draw.randrange(6)), name
    torch.save(content, file, pickle_protocol=draw.choice([2, 3, 4, 5]), _use_new_zipfile_serialization=kind == "zip")
    return file.getvalue(), name


# What follows changes the folder of a good model so that loading it would run code which writes the canary.


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _code(folder: Path, marker: Path, name: str = "foreign.py") -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(CODE.format(marker=str(marker)))


def foreign_config(folder: Path, marker: Path) -> None:
    """An unknown model type, whose classes are in the folder."""
    auto = {"AutoConfig": "foreign.Config", "AutoModelForSeq2SeqLM": "foreign.Model"}
    _edit(folder / "config.json", model_type=FOREIGN, auto_map=auto)
    _code(folder, marker)


def foreign_model(folder: Path, marker: Path) -> None:
    """A known configuration for which only the folder has a translation model."""
    auto = {"AutoModelForSeq2SeqLM": "foreign.Model", "AutoModel": "foreign.Model"}
    config = {"model_type": "bert", "is_encoder_decoder": True, "auto_map": auto, "architectures": ["Model"]}
    known = json.loads((folder / "config.json").read_text())
    sizes = {name: known[name] for name in ("vocab_size", "pad_token_id", "eos_token_id") if name in known}
    (folder / "config.json").write_text(json.dumps(config | sizes))
    _code(folder, marker)


def foreign_tokenizer(folder: Path, marker: Path) -> None:
    """A tokenizer whose class is in the folder."""
    auto = {"AutoTokenizer": ["foreign.Tokenizer", "foreign.Tokenizer"]}
    _edit(folder / "config.json", auto_map={})
    _edit(folder / "tokenizer_config.json", tokenizer_class="Tokenizer", auto_map=auto)
    _code(folder, marker)


def foreign_target_tokenizer(folder: Path, marker: Path) -> None:
    """The same of the target side alone."""
    target = folder / "target_tokenizer"
    target.mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(folder / name, target)
    foreign_tokenizer(target, marker)


def foreign_weights(folder: Path, marker: Path) -> None:
    """Weights in a pickle that calls a function."""
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    torch.save({"model.shared.weight": calls(marker)["builtins.exec"]}, folder / "pytorch_model.bin")


def foreign_generate(folder: Path, marker: Path) -> None:
    """A `generate` of its own, which transformers would take."""
    _code(folder, marker, "custom_generate/generate.py")


def foreign_adapter(folder: Path, marker: Path) -> None:
    """An adapter that names a base model with code."""
    base = folder.with_name(f"{folder.name}-base")
    shutil.copytree(folder, base, dirs_exist_ok=True)
    foreign_config(base, marker)
    settings = {"base_model_name_or_path": str(base), "peft_type": "LORA", "task_type": "SEQ_2_SEQ_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(settings))


PICKLES = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt")


def foreign_pickles(folder: Path, marker: Path, names: Sequence[str] = PICKLES) -> None:
    """Pickles that the Trainer leaves in a checkpoint."""
    for name in names:
        torch.save(calls(marker)["builtins.exec"], folder / name)


def foreign_everything(folder: Path, marker: Path) -> None:
    """All of these together."""
    foreign_pickles(folder, marker)
    foreign_generate(folder, marker)
    foreign_weights(folder, marker)
    foreign_target_tokenizer(folder, marker)
    foreign_tokenizer(folder, marker)
    foreign_config(folder, marker)
    foreign_config(folder / "target_tokenizer", marker)


HOSTILE_FOLDERS: dict[str, Callable[[Path, Path], None]] = {
    "config": foreign_config,
    "model": foreign_model,
    "tokenizer": foreign_tokenizer,
    "target_tokenizer": foreign_target_tokenizer,
    "weights": foreign_weights,
    "generate": foreign_generate,
    "adapter": foreign_adapter,
    "pickles": foreign_pickles,
    "everything": foreign_everything,
}
NEED_CODE = ("everything", "config", "model", "weights")  # of the other folders, what is hostile need not be read


# What follows are small checkpoint files that say more than they hold. They name fairseq's entries, so that
# nothing but the bomb is wrong with them.


def _zipped(path: Path, data: bytes, records: dict[str, bytes] | None = None, **options: Any) -> None:
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/version", "3\n")
        for name, content in (records or {}).items():
            archive.writestr(f"archive/data/{name}", content)


def zip_bomb(path: Path) -> None:
    """64 MB of zeros in 64 kB."""
    _zipped(path, b"\x80\x02}.", {"0": bytes(64_000_000)}, compression=zipfile.ZIP_DEFLATED)


def _tensor(numel: int, shape: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> bytes:
    """The pickle of a checkpoint whose parameter `w` has this storage, shape and stride."""

    def integer(value: int) -> bytes:
        return pickle.dumps(value, 2)[2:-1]

    def integers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(map(integer, values)) + b"t"

    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    storage += integer(numel) + b"tQ"
    arguments = b"(" + storage + integer(offset) + integers(shape) + integers(stride) + b"\x89ccollections\n"
    arguments += b"OrderedDict\n)Rt"
    weight = b"X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"Rs"
    args = b"cargparse\nNamespace\n)\x81}X\x04\x00\x00\x00archX\x01\x00\x00\x00tsb"
    return b"\x80\x02}(X\x05\x00\x00\x00model}" + weight + b"X\x04\x00\x00\x00args" + args + b"u."


def whole_tensor(path: Path) -> None:
    """No bomb: the checkpoint that the following ones differ from."""
    _zipped(path, _tensor(4, (2, 2), (2, 1)), {"0": bytes(16)})


def large_storage(path: Path) -> None:
    """A storage of 40 GB, of which the file has four bytes."""
    _zipped(path, _tensor(10**10, (2, 2), (2, 1)), {"0": bytes(16)})


def large_tensor(path: Path) -> None:
    """A tensor of 40 GB on a storage of four bytes, which torch would enlarge."""
    _zipped(path, _tensor(4, (10**5, 10**5), (10**5, 1)), {"0": bytes(16)})


def negative_tensor(path: Path) -> None:
    """A tensor that begins before its storage."""
    _zipped(path, _tensor(4, (2, 2), (2, 1), offset=-8), {"0": bytes(16)})


def length_bomb(path: Path) -> None:
    """A text that claims to be as long as the address space."""
    magic = pickle.dumps(torch.serialization.MAGIC_NUMBER, 2)
    path.write_bytes(magic + b"\x80\x02\x8d" + (2**62).to_bytes(8, "little"))


BOMBS: dict[str, Callable[[Path], None]] = {
    "zip": zip_bomb,
    "large storage": large_storage,
    "large tensor": large_tensor,
    "negative tensor": negative_tensor,
    "length": length_bomb,
}
