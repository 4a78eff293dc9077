"""training/train.py under `accelerate launch`, with the configurations of training/accelerate, as users start it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close
from toy import ENVIRONMENT, write_recipe

from admin_nmt.trainer.checkpoints import damage

pytestmark = pytest.mark.slow
TRAINING = Path(__file__).parents[2] / "training"
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch", "--config_file"]
LAUNCHERS = {"one": [sys.executable]} | {
    name: [*LAUNCH, TRAINING / "accelerate" / f"{name}.yaml"] for name in ("ddp", "fsdp2")
}


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory) -> Path:
    """A recipe of a 2-1 model without dropout for six updates, on files of 300 pairs; two batches an update."""
    return write_recipe(
        tmp_path_factory.mktemp("launch"),
        held_out=21,
        model={"dropout": 0.0},
        training={"logging_steps": 1, "metric_for_best_model": "eval_loss"},
    )


def command(launcher: str, recipe: Path, folder: Path, *overrides: str) -> list[str]:
    accumulation = "2" if launcher == "one" else "1"
    settings = ["--output_dir", folder, "--training.gradient_accumulation_steps", accumulation, *overrides]
    return [*map(str, LAUNCHERS[launcher]), str(TRAINING / "train.py"), str(recipe), *map(str, settings)]


def train(launcher: str, recipe: Path, folder: Path, *overrides: str) -> dict:
    """The results of a run from beginning to end."""
    line = command(launcher, recipe, folder, *overrides)
    done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def straight(recipe_file, tmp_path_factory) -> tuple[Path, dict]:
    """A run of one process: its folder and its results."""
    folder = tmp_path_factory.mktemp("one") / "run"
    return folder, train("one", recipe_file, folder)


def assert_same_run(folder: Path, results: dict, straight: tuple[Path, dict]) -> None:
    for name in ("loss", "grad_norm", "eval_loss"):
        curves = [[row[name] for row in part["history"] if name in row] for part in (results, straight[1])]
        assert curves[0] == pytest.approx(curves[1], rel=1e-4)
    assert results["chosen"]["kind"] == straight[1]["chosen"]["kind"]
    for model in ("final", "standard"):
        weights, expected = (load_file(run / model / "model.safetensors") for run in (folder, straight[0]))
        moved = [name for name in expected if not name.endswith("k_proj.bias")]  # no gradient but rounding
        assert_close(
            {name: weights[name] for name in moved}, {name: expected[name] for name in moved}, rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("launcher", ["ddp", "fsdp2"])
def test_two_processes_end_with_the_same_model(launcher, recipe_file, straight, tmp_path):
    results = train(launcher, recipe_file, tmp_path / "run")
    assert results["training"]["processes"] == 2
    assert_same_run(tmp_path / "run", results, straight)


def test_sigterm_to_the_launcher_saves_and_stops(recipe_file, tmp_path):
    """The same command then goes on from there; of one process: runs/own_text/test_own_recipe_file.py."""
    folder, log = tmp_path / "run", tmp_path / "log"
    with log.open("w") as output:
        long = command("ddp", recipe_file, folder, "--training.max_steps", "4000", "--training.eval_strategy", "no")
        long += ["--training.load_best_model_at_end", "false", "--training.save_steps", "4000"]
        job = subprocess.Popen(long, env=ENVIRONMENT, stdout=output, stderr=output)
        while "tokens/s" not in log.read_text():  # the heads of the table: training begins
            assert job.poll() is None, log.read_text()[-3000:]
            time.sleep(0.05)
        job.send_signal(signal.SIGTERM)
        code = job.wait(timeout=120)
    told = log.read_text()
    assert code == 1, told[-3000:]
    assert told.count("SIGTERM asked to stop: saved after update ") == 1
    (checkpoint,) = folder.glob("checkpoint-*")
    assert damage(checkpoint) is None
    assert (checkpoint / "on_request").exists()
    steps = str(int(checkpoint.name.split("-")[1]) + 1)
    again = subprocess.run(
        [*long, "--training.max_steps", steps], env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )
    assert again.returncode == 0, again.stderr[-3000:]
    assert f"continuing from {checkpoint}" in again.stdout
    assert [path.name for path in folder.glob("checkpoint-*")] == [f"checkpoint-{steps}"]
