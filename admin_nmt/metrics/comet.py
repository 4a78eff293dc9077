"""COMET, by its own command `comet-score`.

The package unbabel-comet asks for older versions of transformers and huggingface_hub than this one works with, so it
lives in an environment of its own: `pipx install unbabel-comet`, or any other that puts the command on the PATH. Fetch
the model once with `comet-score --model`; nothing is downloaded from here.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

DEFAULT_MODEL = "Unbabel/wmt22-comet-da"


def comet(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    model: str | Path | None = None,
) -> dict[str, float | str]:
    """The mean of a COMET model's scores, as `comet-score` gives them (about 0 to 1 with the default model).

    Args:
        model: a checkpoint file, or a repository of the Hub that is already in the local cache; `DEFAULT_MODEL`
            where it is there, unless one is given.

    Returns:
        `comet` and `comet_model`; nothing if no model is given and the command or the default one is not on this
        machine.

    Raises:
        OSError: the given model or the command is not on this machine, or the command failed.
    """
    command, checkpoint = shutil.which("comet-score"), local_checkpoint(model or DEFAULT_MODEL)
    if command is None or checkpoint is None:
        if model is None:
            return {}
        missing = "the command comet-score" if command is None else f"the COMET model {model}"
        raise OSError(f"{missing} is not on this machine; install it, or score without COMET")
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in (("source", sources), ("hypothesis", hypotheses), ("reference", references)):
            text = "".join(" ".join(line.split()) + "\n" for line in lines)
            Path(folder, name).write_text(text, encoding="utf-8")
        files = ["-s", "source", "-t", "hypothesis", "-r", "reference", "--to_json", "scores.json"]
        options = ["--model", str(checkpoint), "--gpus", str(int(torch.cuda.is_available())), "--quiet"]
        done = subprocess.run(
            [command, *files, *options, "--only_system"],
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            reason = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
            raise OSError(f"comet-score failed with {checkpoint}: {reason}")
        segments = json.loads(Path(folder, "scores.json").read_text(encoding="utf-8"))["hypothesis"]
    return {"comet": fmean(segment["COMET"] for segment in segments), "comet_model": str(model or DEFAULT_MODEL)}


def local_checkpoint(model: str | Path) -> Path | None:
    """The checkpoint file of a COMET model on this machine, or None."""
    if Path(model).is_file():
        return Path(model).resolve()
    try:
        checkpoint = Path(snapshot_download(str(model), local_files_only=True), "checkpoints", "model.ckpt")
    except (HFValidationError, LocalEntryNotFoundError):
        return None
    return checkpoint if checkpoint.is_file() else None


def _environment() -> dict[str, str]:
    # Another environment's Python must not see this one's packages.
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return kept | {"HF_HUB_OFFLINE": "1"}
