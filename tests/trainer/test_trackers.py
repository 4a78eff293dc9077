"""Metrics that a tracker is given, by the example of TensorBoard's own files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from toy import random_ids

from admin_nmt import AdminTrainer
from admin_nmt.weights.omega import omega_by_sublayer

TRAINING = ("loss", "nll", "grad_norm", "learning_rate", "target_tokens_per_second", "omega_encoder", "omega_decoder")


@pytest.fixture
def run(arguments, new_model) -> Callable[..., AdminTrainer]:
    """Trains a small model for four updates with two evaluations, and gives its trainer."""

    def train(**fields) -> AdminTrainer:
        data = random_ids(24)
        args = arguments(report_to="tensorboard", max_steps=4, logging_steps=2, eval_strategy="steps", eval_steps=2)
        trainer = AdminTrainer(new_model(omega_rule="log_n", **fields), args, train_dataset=data, eval_dataset=data)
        trainer.train()
        return trainer

    return train


def stack_means(trainer: AdminTrainer) -> dict[str, float]:
    omega = omega_by_sublayer(trainer.model)
    return {
        f"omega_{stack}": float(torch.stack([x.mean() for name, x in omega.items() if name.startswith(stack)]).mean())
        for stack in ("encoder", "decoder")
    }


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values of each tag in TensorBoard's files below a folder."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (events,) = {path.parent for path in folder.rglob("events.out.tfevents.*")}
    read = accumulator.EventAccumulator(str(events))
    read.Reload()
    return {tag: [(row.step, row.value) for row in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


@pytest.mark.parametrize("trained", [True, False])
def test_tensorboard(run, trained):
    pytest.importorskip("tensorboard")
    trainer = run(train_omega=trained)
    found, history = scalars(Path(trainer.args.output_dir)), trainer.state.log_history
    assert {f"train/{name}" for name in TRAINING} | {"eval/loss", "eval/nll"} <= found.keys()
    for name in ("loss", "nll", "grad_norm", "target_tokens_per_second"):
        logged = [(row["step"], row[name]) for row in history if name in row]
        assert [step for step, _ in found[f"train/{name}"]] == [2, 4] == [step for step, _ in logged]
        assert [value for _, value in found[f"train/{name}"]] == pytest.approx([value for _, value in logged])
    assert found["eval/nll"] == found["eval/loss"]
    for name, mean in stack_means(trainer).items():
        (_, first), (_, last) = found[f"train/{name}"]
        assert last == pytest.approx(mean)
        assert (first != last) == trained
    assert not [name for row in history for name in row if "omega" in name or name == "eval_nll"]


def test_a_model_without_omega(run):
    pytest.importorskip("tensorboard")
    trainer = run(variant="pre_ln")
    found = scalars(Path(trainer.args.output_dir))
    assert "train/nll" in found and not [tag for tag in found if "omega" in tag]
