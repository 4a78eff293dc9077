"""SIGTERM ends a run after an update with a checkpoint, from which it goes on as if nothing had happened."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from distributed_worker import UPDATES, Terminate, new_trainer
from toy import budget_for, random_ids
from transformers import TrainerCallback

from admin_nmt.trainer.admin_trainer import AdminTrainer
from admin_nmt.trainer.callbacks import StopRequest, StopRequestedError
from admin_nmt.trainer.checkpoints import complete_checkpoints, last_whole_weights, requested_checkpoints

STRATEGIES = {
    "steps": {"save_strategy": "steps", "save_steps": 3, "save_total_limit": 2},
    "epoch": {"save_strategy": "epoch", "save_total_limit": 2, "eval_strategy": "epoch"},
    "no": {},
}
EPOCH = 5


def trainer(folder: Path, strategy: str, *callbacks: TrainerCallback) -> AdminTrainer:
    """Nine updates, of which an epoch has five, with dropout."""
    fields = STRATEGIES[strategy] | {"max_tokens": budget_for(random_ids(24), EPOCH)}
    return new_trainer(folder, 0.1, 1, *callbacks, **fields)


def names(folders: list[Path]) -> list[str]:
    return [folder.name for folder in folders]


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Callable[[str], AdminTrainer]:
    """A run that nobody stopped, one for each strategy."""

    @cache
    def trained(strategy: str) -> AdminTrainer:
        run = trainer(tmp_path_factory.mktemp(strategy), strategy)
        run.train()
        return run

    return trained


MOMENTS = {"middle": 7, "save": 3, "epoch": EPOCH, "end": UPDATES}
QUICK = [("steps", "middle"), ("steps", "save"), ("epoch", "epoch")]
OTHERS = [case for case in product(STRATEGIES, MOMENTS) if case not in QUICK]


@pytest.mark.parametrize(
    ("strategy", "moment"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS)]
)
def test_goes_on_bit_for_bit(straight, strategy, moment, tmp_path):
    update, expected = MOMENTS[moment], straight(strategy)
    with pytest.raises(StopRequestedError, match=f"checkpoint-{update}"):
        trainer(tmp_path, strategy, Terminate(update)).train()
    kept = last_whole_weights(tmp_path, UPDATES)
    assert not set(names(requested_checkpoints(tmp_path))) & set(names(kept))
    resumed = trainer(tmp_path, strategy)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.resumed_from == tmp_path / f"checkpoint-{update}"
    torch.testing.assert_close(resumed.model.state_dict(), expected.model.state_dict(), rtol=0, atol=0)
    averaged = [names(last_whole_weights(run.args.output_dir, UPDATES)) for run in (resumed, expected)]
    assert averaged[0] == averaged[1]
    evaluated = [[row["step"] for row in run.state.log_history if "eval_loss" in row] for run in (resumed, expected)]
    assert evaluated[0] == evaluated[1]


def test_a_best_checkpoint_is_the_runs_own_though_a_stop_was_requested(tmp_path):
    """With `save_strategy: best` it is known only after the evaluation of the update at which the signal came."""
    best = {"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss"}
    best["max_steps"] = 4
    straight = new_trainer(tmp_path / "straight", 0.1, 1, **best)
    straight.train()
    with pytest.raises(StopRequestedError):
        new_trainer(tmp_path / "stopped", 0.1, 1, Terminate(2), **best).train()
    assert not requested_checkpoints(tmp_path / "stopped")
    new_trainer(tmp_path / "stopped", 0.1, 1, **best).train(resume_from_checkpoint=True)
    expected, found = (names(complete_checkpoints(tmp_path / name)) for name in ("straight", "stopped"))
    assert expected[0] == "checkpoint-2" and found == expected


def test_the_end_does_not_look_for_a_requested_checkpoint_that_has_passed(tmp_path):
    """It was the best when it was written, and the run would not have written it by itself."""
    fields = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1, "learning_rate": 0.0}
    fields |= {"eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "loss", "max_steps": 4}
    with pytest.raises(StopRequestedError):
        new_trainer(tmp_path, 0.0, 1, Terminate(1), **fields).train()
    assert names(requested_checkpoints(tmp_path)) == ["checkpoint-1"]
    resumed = new_trainer(tmp_path, 0.0, 1, **fields)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 4
    assert names(complete_checkpoints(tmp_path)) == ["checkpoint-4"]


def test_the_signal_is_listened_to_while_training_lasts():
    request, before = StopRequest(), signal.getsignal(signal.SIGTERM)
    with request.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.received
    assert signal.getsignal(signal.SIGTERM) == before == signal.SIG_DFL


def test_a_program_that_handles_the_signal_goes_on_doing_so():
    heard, request = [], StopRequest()
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with request.listening():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert heard == [signal.SIGTERM] and not request.received


def test_other_threads_may_train():
    def listens() -> bool:
        with StopRequest().listening():
            return True

    with ThreadPoolExecutor() as pool:
        assert pool.submit(listens).result()
