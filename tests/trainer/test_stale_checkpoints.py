"""Checkpoints of an earlier training in the same folder: the choice of weights of the next one does not see them."""

from pathlib import Path

import pytest
from distributed_worker import SAVED, new_trainer
from toy import SaveAfter, StopAfter, truncated

from admin_nmt.trainer.checkpoints import complete_checkpoints, last_whole_weights

EVERY_UPDATE = {"save_strategy": "steps", "save_steps": 1}


@pytest.fixture
def run(tmp_path) -> Path:
    new_trainer(tmp_path, 0.0, 1, SaveAfter(SAVED), StopAfter(2 * SAVED)).train()
    return tmp_path


def test_a_fresh_start_sets_earlier_checkpoints_aside(run):
    earlier = complete_checkpoints(run)
    for checkpoint in earlier:
        truncated(checkpoint / "optimizer.pt")
    new_trainer(run, 0.0, 1, StopAfter(2), **EVERY_UPDATE, save_total_limit=2).train()
    own = [run / "checkpoint-1", run / "checkpoint-2"]
    assert last_whole_weights(run, 10) == complete_checkpoints(run) == own
    assert complete_checkpoints(run / "_set-aside-1") == [run / "_set-aside-1" / path.name for path in earlier]
    new_trainer(run, 0.0, 1, StopAfter(1)).train()
    assert complete_checkpoints(run / "_set-aside-2") == [run / "_set-aside-2" / path.name for path in own]


def test_what_comes_after_the_checkpoint_that_is_resumed_is_set_aside(run):
    first, later = complete_checkpoints(run)
    truncated(later / "optimizer.pt")  # its weights are whole
    new_trainer(run, 0.0, 1).train(resume_from_checkpoint=True)
    assert last_whole_weights(run, 10) == [first]
    assert complete_checkpoints(run / "_set-aside-1") == [run / "_set-aside-1" / later.name]
