"""Folders and pickles that try to run code, whose canary is a file that it would write; and pickles that swell."""

import builtins
import json
import os
import shutil
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._utils import _rebuild_tensor_v2

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
    """Calls that write the canary, or would load its file, by the name that a refusal tells."""
    return {
        f"{os.system.__module__}.system": Call(os.system, f"touch {marker}"),
        "builtins.exec": Call(exec, f"open('{marker}', 'w')"),
        "io.open": Call(builtins.open, str(marker), "w"),
        "torch.serialization.load": Call(torch.load, str(marker)),
    }


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


def _checkpoint(path: Path, weight: Any, zipped: bool = True) -> None:
    content = {"args": Namespace(arch="transformer"), "model": {"w": weight}}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)


def zip_bomb(path: Path) -> None:
    """64 MB of zeros in 64 kB."""
    _checkpoint(path, torch.ones(2))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/9", bytes(64_000_000))


def repeated_elements(path: Path) -> None:
    """A tensor of 40 GB that repeats the one number of its storage."""
    _checkpoint(path, torch.ones(1).expand(10**5, 10**5))


def large_tensor(path: Path) -> None:
    """A tensor of 64 MB on a storage of 16 bytes, which torch would enlarge."""
    shape, stride, storage = (4000, 4000), (4000, 1), torch.ones(4)._typed_storage()
    _checkpoint(path, Call(_rebuild_tensor_v2, storage, 0, shape, stride, False, OrderedDict()), zipped=False)


BOMBS: dict[str, Callable[[Path], None]] = {
    "zip": zip_bomb,
    "repeated elements": repeated_elements,
    "large tensor": large_tensor,
}
