"""Reading checkpoint files: what is read, what is refused, and that nothing in them runs."""

import pickle
import random
import sys
import types
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hostile import BOMBS, Call, calls, hostile_checkpoint, whole_tensor

from admin_nmt.weights.fairseq_file import CheckpointFileError, Meter, load_checkpoint, read_checkpoint

ARGS = {"arch": "transformer", "encoder_layers": 3, "dropout": 0.1}
FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


@pytest.fixture
def model():
    weight = torch.randn(5, 4)
    return OrderedDict({"encoder.embed_tokens.weight": weight, "decoder.embed_tokens.weight": weight, "n": weight[1:3]})


@pytest.fixture
def write(tmp_path):
    def write(content, zipped: bool = True, **kwargs) -> Path:
        path = tmp_path / "checkpoint.pt"
        torch.save(content, path, _use_new_zipfile_serialization=zipped, **kwargs)
        return path

    return write


@pytest.fixture
def meter(monkeypatch):
    """An instance of `fairseq.meters.AverageMeter`, a class that is only there while the file is written."""
    module = types.ModuleType("fairseq.meters")
    meter_class = type("AverageMeter", (), {"__module__": "fairseq.meters"})
    module.AverageMeter = meter_class
    monkeypatch.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
    monkeypatch.setitem(sys.modules, "fairseq.meters", module)
    instance = meter_class()
    instance.sum = 3.5
    return instance


@FORMATS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_and_arguments_are_read(model, write, meter, zipped, dtype):
    model = OrderedDict((name, tensor.to(dtype)) for name, tensor in model.items())
    extra = {"train_meters": OrderedDict(loss=meter), "set": {1, 2}, "best": None, "path": b"x"}
    path = write({"args": Namespace(**ARGS), "model": model, "extra_state": extra}, zipped)
    del sys.modules["fairseq.meters"]
    state, args = read_checkpoint(path)
    assert args == ARGS
    assert state.keys() == model.keys()
    assert all(torch.equal(state[name], model[name]) and state[name].dtype == dtype for name in model)
    assert isinstance(load_checkpoint(path)["extra_state"]["train_meters"]["loss"], Meter)
    assert "fairseq.meters" not in sys.modules


@FORMATS
def test_scalars_of_numpy_are_read(write, model, zipped):
    numpy = pytest.importorskip("numpy")
    path = write({"args": Namespace(**ARGS), "model": model, "val_loss": numpy.float64(3.2)}, zipped)
    assert read_checkpoint(path)[1] == ARGS


def test_settings_of_newer_versions(write, model):
    cfg = {
        "model": Namespace(encoder_layers=3, dropout=0.1),
        "task": {"source_lang": "en"},
        "criterion": {"label_smoothing": 0.1},
    }
    expected = {"encoder_layers": 3, "dropout": 0.1, "source_lang": "en", "label_smoothing": 0.1}
    assert read_checkpoint(write({"args": None, "cfg": cfg, "model": model}))[1] == expected
    cfg["model"] = {"encoder": {"layers": 3}, "decoder": {"layers": 2}, "dropout": 0.1}
    args = read_checkpoint(write({"args": None, "cfg": cfg, "model": model}))[1]
    assert (args["encoder_layers"], args["decoder_layers"], args["dropout"]) == (3, 2, 0.1)


@FORMATS
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("name", calls(Path("x")))
def test_code_is_refused_and_does_not_run(write, model, tmp_path, zipped, protocol, name):
    marker = tmp_path / "marker"
    namespace = Namespace(**ARGS, inner=Namespace(values=[{"x": calls(marker)[name]}]))
    path = write({"args": namespace, "model": model}, zipped, pickle_protocol=protocol)
    with pytest.raises(CheckpointFileError, match="refused" if protocol == 2 else "refused|damaged"):
        read_checkpoint(path)
    assert not marker.exists()


@FORMATS
def test_functions_of_unknown_packages_are_refused(write, model, monkeypatch, zipped):
    """fairseq has such functions itself: this one runs the code of a folder."""
    module = types.ModuleType("fairseq.utils")
    exec("def import_user_module(args): raise SystemExit", module.__dict__)
    module.import_user_module.__module__ = "fairseq.utils"
    monkeypatch.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
    monkeypatch.setitem(sys.modules, "fairseq.utils", module)
    path = write({"args": Call(module.import_user_module, Namespace(user_dir="/x")), "model": model}, zipped)
    with pytest.raises(CheckpointFileError, match=r"fairseq\.utils\.import_user_module"):
        read_checkpoint(path)


def test_allowed_classes_stay_as_they_were(write, model):
    """The state of an object may set attributes; here the object is the class itself."""
    path = write({"args": None, "model": model}, zipped=False)
    head = b"".join(pickle.dumps(part, 2) for part in (torch.serialization.MAGIC_NUMBER, 1001, {"little_endian": True}))
    path.write_bytes(head + b"\x80\x02cargparse\nNamespace\nN}X\x01\x00\x00\x00xK\x01s\x86b.")
    with pytest.raises(CheckpointFileError, match="damaged"):
        read_checkpoint(path)
    assert not hasattr(Namespace, "x")


@FORMATS
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_files_that_were_cut_off_say_so(write, model, zipped, share):
    model["large"] = torch.randn(64, 64)
    path = write({"args": Namespace(**ARGS), "model": model}, zipped)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(CheckpointFileError, match=r"checkpoint\.pt: is damaged"):
        read_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"{}", b"hello", b"\x80\x02K\x01.", b"\x00" * 100])
def test_other_files_are_no_checkpoint(tmp_path, content):
    path = tmp_path / "file.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointFileError, match=r"file\.pt: is damaged"):
        read_checkpoint(path)


def test_torchscript_is_refused(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "script.pt")
    with pytest.raises(CheckpointFileError, match="damaged"):
        read_checkpoint(tmp_path / "script.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weights": {}}, r"no entry 'model' \(but weights\)"),
        ([1], r"no entry 'model' \(but list\)"),
        ({"model": {"x": 1}, "args": Namespace(a=1)}, "not a dictionary of tensors"),
        ({"model": {"x": torch.ones(1)}}, "neither 'args' nor 'cfg'"),
        ({"model": {"x": torch.ones(1)}, "args": None, "cfg": {"model": None}}, "neither 'args' nor 'cfg'"),
    ],
)
def test_incomplete_checkpoints_say_what_is_missing(write, content, message):
    with pytest.raises(CheckpointFileError, match=message):
        read_checkpoint(write(content))


@pytest.mark.parametrize("seed", range(20))
def test_hostile_files_run_nothing(tmp_path, seed):
    path, marker = tmp_path / "checkpoint.pt", tmp_path / "marker"
    content, _ = hostile_checkpoint(random.Random(seed), marker)
    path.write_bytes(content)
    with pytest.raises(CheckpointFileError, match=r"refused|damaged"):
        read_checkpoint(path)
    assert not marker.exists()


def test_what_the_bombs_differ_from_is_read(tmp_path):
    whole_tensor(tmp_path / "checkpoint.pt")
    state, args = read_checkpoint(tmp_path / "checkpoint.pt")
    assert torch.equal(state["w"], torch.zeros(2, 2)) and args == {"arch": "t"}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(tmp_path, name):
    """A file that says more than it holds, by a sentence that names it."""
    path = tmp_path / "checkpoint.pt"
    BOMBS[name](path)
    with pytest.raises(CheckpointFileError, match=r"checkpoint\.pt: "):
        read_checkpoint(path)
