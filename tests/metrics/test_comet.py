"""COMET through its own command: what it is given, what is read back, and nothing downloaded."""

import sys

import pytest

from admin_nmt.metrics.comet import comet
from admin_nmt.metrics.scores import untested_scores

# Stands for `comet-score`, which needs an environment of its own: the share of equal words, and the options it saw.
COMMAND = """#!{python}
import json, os, pathlib, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if pathlib.Path(options["--model"]).read_text() != "weights":
    sys.exit("Traceback\\nException: no such weights")
assert os.environ["HF_HUB_OFFLINE"] == "1" and "PYTHONPATH" not in os.environ
lines = [pathlib.Path(options[name]).read_text().splitlines() for name in ("-s", "-t", "-r")]
segments = [dict(src=s, mt=t, ref=r, COMET=float(t == r)) for s, t, r in zip(*lines, strict=True)]
pathlib.Path(options["--to_json"]).write_text(json.dumps({{options["-t"]: segments}}))
"""


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    command = tmp_path / "comet-score"
    command.write_text(COMMAND.format(python=sys.executable))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    (tmp_path / "model.ckpt").write_text("weights")
    return tmp_path / "model.ckpt"


def test_scores_are_those_of_the_command_on_paired_lines(checkpoint):
    hypotheses, references = ["a\nb", "c", "", "d"], ["a b", "c", "", "e"]
    assert comet(["s"] * 4, hypotheses, references, checkpoint) == {"comet": 0.75, "comet_model": str(checkpoint)}


def test_failure_says_why(checkpoint):
    checkpoint.write_text("rubbish")
    with pytest.raises(OSError, match=r"model\.ckpt: Exception: no such weights"):
        comet(["s"], ["a"], ["a"], checkpoint)


def test_what_is_not_here_is_left_out_or_refused_by_name(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(OSError, match="nobody/none"):
        comet(["s"], ["a"], ["a"], "nobody/none")
    monkeypatch.setenv("PATH", "")
    assert comet(["s"], ["a"], ["a"]) == {}
    assert not [name for name in untested_scores(["a"], ["a"], "de", ["s"]) if "comet" in name]
    with pytest.raises(OSError, match="comet-score"):
        comet(["s"], ["a"], ["a"], checkpoint)
