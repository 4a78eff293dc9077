"""Reading checkpoint files: what is read, what is refused, and that nothing in them runs."""

import sys
import types
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile import BOMBS, calls

from admin_nmt.weights.fairseq_file import CheckpointFileError, read_checkpoint

ARGS = {"arch": "transformer", "encoder_layers": 3, "dropout": 0.1}
FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])


@pytest.fixture
def model():
    weight = torch.randn(5, 4)
    return OrderedDict({"encoder.embed_tokens.weight": weight, "decoder.embed_tokens.weight": weight, "n": weight[1:3]})


@pytest.fixture
def write(tmp_path):
    def write(content, zipped: bool = True) -> Path:
        path = tmp_path / "checkpoint.pt"
        torch.save(content, path, _use_new_zipfile_serialization=zipped)
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
    best = np.float64(3.2)
    extra = {"train_meters": OrderedDict(loss=meter), "set": {1, 2}, "best": best, "path": b"x"}
    path = write({"args": Namespace(**ARGS), "model": model, "extra_state": extra}, zipped)
    del sys.modules["fairseq.meters"]
    state, args = read_checkpoint(path)
    assert args == ARGS
    assert state.keys() == model.keys()
    assert all(torch.equal(state[name], model[name]) and state[name].dtype == dtype for name in model)
    assert "fairseq.meters" not in sys.modules


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


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ([1], "model"),
        ({"model": {"x": 1}, "args": Namespace(a=1)}, "model"),
        ({"model": {"x": torch.ones(1)}}, "args"),
        ({"model": {"x": torch.ones(1)}, "args": None, "cfg": {"model": None}}, "cfg"),
    ],
)
def test_incomplete_checkpoints_say_what_is_missing(write, content, named):
    with pytest.raises(CheckpointFileError, match=f"'{named}'"):
        read_checkpoint(write(content))


@FORMATS
@pytest.mark.parametrize("share", [0, 0.6])
def test_files_that_were_cut_off_are_named(write, model, zipped, share):
    model["large"] = torch.randn(64, 64)
    path = write({"args": Namespace(**ARGS), "model": model}, zipped)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(CheckpointFileError, match=r"checkpoint\.pt"):
        read_checkpoint(path)


@FORMATS
@pytest.mark.parametrize("name", calls(Path("x")))
def test_code_is_refused_and_does_not_run(write, model, tmp_path, zipped, name):
    marker = tmp_path / "marker"
    namespace = Namespace(**ARGS, inner=Namespace(values=[{"x": calls(marker)[name]}]))
    with pytest.raises(CheckpointFileError, match=r"refused|damaged"):
        read_checkpoint(write({"args": namespace, "model": model}, zipped))
    assert not marker.exists()


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(tmp_path, name):
    """Files that say more than they hold."""
    path = tmp_path / "checkpoint.pt"
    BOMBS[name](path)
    assert path.stat().st_size < 100_000
    with pytest.raises(CheckpointFileError, match=r"checkpoint\.pt"):
        read_checkpoint(path)
