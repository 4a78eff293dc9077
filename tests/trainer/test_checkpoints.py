"""Which checkpoints of a run count, what is noticed of their damages, and what a full disk leaves of them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from distributed_worker import SAVED, UPDATES, new_trainer
from toy import SaveAfter, StopAfter, bit_flipped, removed, truncated
from transformers import EarlyStoppingCallback, TrainerControl, TrainerState

from admin_nmt import AdminTrainer
from admin_nmt.trainer import checkpoints
from admin_nmt.trainer.callbacks import AsSetNow
from admin_nmt.trainer.checkpoints import (
    checkpoint_being_written,
    complete_checkpoints,
    damage,
    damaged_weights,
    last_whole_weights,
    newest_whole_checkpoint,
    set_aside_later,
    write_manifest,
)

LOADED = ["config.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]


def test_complete_checkpoints_go_by_number(tmp_path: Path) -> None:
    for name in ("checkpoint-900", "checkpoint-1000", "checkpoint-20", "checkpoint-best", "checkpoint-2-old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text("{}")
    for name, state in (("checkpoint-8000", "{"), ("checkpoint-9000", None)):  # cut off: the state is written last
        (tmp_path / name).mkdir()
        if state is not None:
            (tmp_path / name / "trainer_state.json").write_text(state)
    names = [folder.name for folder in complete_checkpoints(tmp_path)]
    assert names == ["checkpoint-20", "checkpoint-900", "checkpoint-1000"]


@pytest.mark.parametrize(("error", "is_finished"), [(RuntimeError("a rank has gone"), False), (OSError("disk"), True)])
def test_other_errors_and_those_after_a_checkpoint_keep_their_message_and_the_folder(tmp_path, error, is_finished):
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    with pytest.raises(type(error), match=f"^{error}$"), checkpoint_being_written(folder, False, False):
        if is_finished:
            (folder / "trainer_state.json").write_text("{}")
        raise error
    assert folder.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def size_on_disk(*paths: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in paths)


@pytest.mark.parametrize("missing", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
def test_a_full_disk_leaves_the_checkpoint_before(missing: str, small_disk: Path, saved: Path) -> None:
    """The space ends within the file `missing`."""
    checkpoint = shutil.copytree(saved / f"checkpoint-{SAVED}", small_disk / f"checkpoint-{SAVED}")
    in_order = sorted(checkpoint.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    written = [path.name for path in in_order].index(missing)
    space = size_on_disk(*in_order[:written]) + size_on_disk(in_order[written]) // 2
    (small_disk / "filler").write_bytes(bytes(shutil.disk_usage(small_disk).free - space))
    with pytest.raises(OSError, match=rf"checkpoint-{2 * SAVED}: .*{re.escape(str(checkpoint))}"):
        new_trainer(small_disk, 0.1, 1, StopAfter(2 * SAVED)).train(resume_from_checkpoint=str(checkpoint))
    assert complete_checkpoints(small_disk) == [*small_disk.glob("checkpoint-*")] == [checkpoint]
    assert damage(checkpoint) is None


STILL = {"learning_rate": 0.0, "eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "loss"}
STILL |= {"save_strategy": "steps", "save_steps": 1}


def test_a_run_that_its_evaluations_have_ended_has_ended(tmp_path: Path) -> None:
    """Killed afterwards, it is not trained until they end it once more; unless with more patience.

    It may have begun without the callback that counts them.
    """
    new_trainer(tmp_path, 0.0, 1, StopAfter(1), **STILL).train()
    for patience, last in ((2, 3), (2, 3), (4, 5)):
        run = new_trainer(tmp_path, 0.0, 1, EarlyStoppingCallback(patience), **STILL)
        run.train(resume_from_checkpoint=True)
        assert run.state.global_step == last


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A run that was stopped after two checkpoints."""
    folder = tmp_path_factory.mktemp("saved")
    new_trainer(folder, 0.1, 1, SaveAfter(SAVED), StopAfter(2 * SAVED)).train()
    return folder


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> AdminTrainer:
    """The run when nothing stops it."""
    trainer = new_trainer(tmp_path_factory.mktemp("straight"), 0.1, 1)
    trainer.train()
    return trainer


@pytest.fixture
def run(saved, tmp_path) -> Path:
    """A copy of the run that was stopped."""
    return shutil.copytree(saved, tmp_path / "run")


def newest(run: Path) -> Path:
    return run / f"checkpoint-{2 * SAVED}"


@pytest.mark.parametrize("harm", [removed, truncated, bit_flipped])
@pytest.mark.parametrize("name", LOADED)
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_taken(run, caplog, name, harm):
    harm(newest(run) / name)
    assert newest_whole_checkpoint(run) == run / f"checkpoint-{SAVED}"
    (message,) = caplog.messages
    assert f"checkpoint-{2 * SAVED} is skipped: {name}" in message


def test_a_run_ends_as_if_its_last_checkpoint_had_not_been_damaged(run, straight):
    """Which is set aside."""
    bit_flipped(newest(run) / "optimizer.pt")
    trainer = new_trainer(run, 0.1, 1)
    torch.manual_seed(12345)
    trainer.train(resume_from_checkpoint=True)
    torch.testing.assert_close(trainer.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0)
    assert complete_checkpoints(run / "_set-aside-1") == [run / "_set-aside-1" / newest(run).name]
    assert last_whole_weights(run, 10) == [run / f"checkpoint-{SAVED}"]


def test_a_damaged_checkpoint_that_is_named_is_refused_and_none_at_all_is_no_new_beginning(run):
    for checkpoint in complete_checkpoints(run):
        bit_flipped(checkpoint / "scheduler.pt")
    with pytest.raises(ValueError, match=rf"checkpoint-{2 * SAVED}: scheduler\.pt"):
        new_trainer(run, 0.1, 1).train(resume_from_checkpoint=str(newest(run)))
    with pytest.raises(ValueError, match="holds no whole checkpoint"):
        new_trainer(run, 0.1, 1).train(resume_from_checkpoint=True)


@pytest.mark.parametrize("content", ["", "[]", '{"files": {"optimizer.pt": 3}}', '{"files": {"config.json": {}}}'])
def test_a_damaged_manifest_is_no_traceback(run, content):
    (newest(run) / "manifest.json").write_text(content)
    assert damage(newest(run)) == "manifest.json is damaged"


def test_a_checkpoint_without_manifest_is_taken_if_it_is_complete(run, caplog):
    """As a kill leaves it just before the end."""
    (newest(run) / "manifest.json").unlink()
    assert newest_whole_checkpoint(run) == newest(run)
    assert "manifest.json" in caplog.text
    for name in LOADED[1:]:
        path = newest(run) / name
        content = path.read_bytes()
        path.unlink()
        assert damage(newest(run)).startswith(name)
        path.write_bytes(content)


def test_a_checkpoint_of_weights_alone_is_not_continued(run, caplog):
    """As `save_only_model` leaves it."""
    for checkpoint in complete_checkpoints(run):
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (checkpoint / name).unlink()
        write_manifest(checkpoint)
    assert newest_whole_checkpoint(run) is None
    assert "optimizer.pt is missing" in caplog.text
    assert last_whole_weights(run, 2) == complete_checkpoints(run)


def test_a_fresh_start_sets_earlier_checkpoints_aside(run):
    """The choice of weights does not see them, nor does the limit count them."""
    earlier = complete_checkpoints(run)
    for checkpoint in earlier:
        truncated(checkpoint / "optimizer.pt")
    fields = {"save_strategy": "steps", "save_steps": 1, "save_total_limit": 2}
    new_trainer(run, 0.0, 1, StopAfter(2), **fields).train()
    own = [run / "checkpoint-1", run / "checkpoint-2"]
    assert last_whole_weights(run, 10) == complete_checkpoints(run) == own
    assert complete_checkpoints(run / "_set-aside-1") == [run / "_set-aside-1" / path.name for path in earlier]
    set_aside_later(run, 0)
    assert complete_checkpoints(run / "_set-aside-2") == [run / "_set-aside-2" / path.name for path in own]


def test_rotation_leaves_a_whole_checkpoint_at_any_moment(tmp_path, monkeypatch):
    """With room for one, the old one goes when all of the new one but its manifest is there, and not before."""
    before = []

    def spy(checkpoint):
        before.append([path.name for path in complete_checkpoints(tmp_path) if damage(path) is None])
        write_manifest(checkpoint)

    monkeypatch.setattr(checkpoints, "write_manifest", spy)
    trainer = new_trainer(tmp_path, 0.0, 1, SaveAfter(1), SaveAfter(2), StopAfter(3))
    trainer.args.save_total_limit = 1
    trainer.train()
    assert before == [["checkpoint-1"], ["checkpoint-2"], ["checkpoint-3"]]


def test_averages_are_of_whole_weights_alone(run, caplog):
    (newest(run) / "optimizer.pt").unlink()
    assert last_whole_weights(run, 5) == complete_checkpoints(run)
    bit_flipped(newest(run) / "model.safetensors")
    assert last_whole_weights(run, 5) == [run / f"checkpoint-{SAVED}"]
    assert "model.safetensors was changed after it was written" in caplog.text


def test_damaged_best_weights_are_not_loaded(run, caplog):
    trainer = new_trainer(run, 0.1, 1)
    trainer.args.load_best_model_at_end, trainer.args.metric_for_best_model = True, "eval_loss"
    state = newest(run) / "trainer_state.json"
    told = {"best_model_checkpoint": f"away/checkpoint-{SAVED}", "best_global_step": SAVED, "best_metric": 1.0}
    state.write_text(json.dumps(json.loads(state.read_text()) | told))
    write_manifest(newest(run))
    bit_flipped(run / f"checkpoint-{SAVED}" / "model.safetensors")
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.best_model_checkpoint is None
    assert damaged_weights(run / f"checkpoint-{SAVED}") in caplog.text


def test_the_best_checkpoint_of_a_run_that_was_moved(tmp_path):
    trainer = new_trainer(tmp_path, 0.0, 1)
    (tmp_path / "checkpoint-1").mkdir()
    lost = str(tmp_path / "checkpoint-9")
    cases = [(False, 1, None, str(tmp_path / "checkpoint-1")), (False, 9, None, None), (False, None, None, None)]
    cases += [(True, 9, None, lost), (True, 9, "elsewhere/checkpoint-9", "elsewhere/checkpoint-9")]
    for loads_best, step, known, found in cases:  # one that is lost the end of the run will name
        trainer.args.load_best_model_at_end = loads_best
        state = TrainerState(best_global_step=step, best_model_checkpoint=known)
        AsSetNow().on_train_begin(trainer.args, state, TrainerControl())
        assert state.best_model_checkpoint == found


def test_a_run_that_goes_on_saves_as_often_as_it_is_told_now(run):
    new_trainer(run, 0.1, 1, save_strategy="steps", save_steps=1).train(resume_from_checkpoint=True)
    found = [int(path.name.split("-")[1]) for path in complete_checkpoints(run)]
    assert found == [SAVED, *range(2 * SAVED, UPDATES + 1)]


def test_the_loss_of_a_run_is_that_of_all_its_updates(tmp_path, straight):
    """To the bit, wherever it was interrupted and however seldom it logs."""
    losses, tokens = [], []
    for folder, stops in (("straight", [UPDATES]), ("interrupted", [SAVED, UPDATES, UPDATES])):
        for leg, stop in enumerate(stops):
            trainer = new_trainer(tmp_path / folder, 0.1, 1, SaveAfter(SAVED), StopAfter(stop), logging_steps=5)
            output = trainer.train(resume_from_checkpoint=leg > 0)
            assert output.training_loss == output.metrics["train_loss"]
        history = trainer.state.log_history
        losses.append([output.training_loss, *(row["loss"] for row in history if "loss" in row)])
        tokens.append(sum(row.get("target_tokens", 0) for row in history))
    assert losses[0] == losses[1] and len(losses[0]) == 1 + 3  # after 3, 5 and 9 updates
    assert tokens[0] == tokens[1]
    each = [row["loss"] for row in straight.state.log_history if "loss" in row]
    assert losses[0][0] == pytest.approx(sum(each) / UPDATES)
