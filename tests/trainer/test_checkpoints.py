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
from toy import Killed, SaveAfter, StopAfter, bit_flipped, removed, truncated
from transformers import EarlyStoppingCallback, TrainerControl, TrainerState

from admin_nmt.trainer import checkpoints
from admin_nmt.trainer.callbacks import BestInFolder
from admin_nmt.trainer.checkpoints import (
    best_whole_checkpoint,
    checkpoint_being_written,
    complete_checkpoints,
    damage,
    damaged_weights,
    last_whole_weights,
    newest_whole_checkpoint,
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


def test_other_errors_keep_their_message_and_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    with pytest.raises(RuntimeError, match="another rank"), checkpoint_being_written(folder, False, False):
        raise RuntimeError("another rank has gone")
    assert folder.exists()


def test_a_checkpoint_that_was_finished_stays_whatever_fails_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    with pytest.raises(OSError, match=r"^no space for the push$"), checkpoint_being_written(folder, False, False):
        (folder / "trainer_state.json").write_text("{}")
        raise OSError("no space for the push")
    assert complete_checkpoints(tmp_path) == [folder]


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
def test_a_full_disk_leaves_the_checkpoint_before(missing: str, small_disk: Path) -> None:
    """The space ends within the file `missing`; the run then goes on as if it had not stopped."""
    new_trainer(small_disk, 0.0, 1, StopAfter(SAVED)).train()
    checkpoint = small_disk / f"checkpoint-{SAVED}"
    in_order = sorted(checkpoint.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    written = [path.name for path in in_order].index(missing)
    space = size_on_disk(*in_order[:written]) + size_on_disk(in_order[written]) // 2
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - space))
    cut = new_trainer(small_disk, 0.0, 1, StopAfter(2 * SAVED))
    message = rf"checkpoint-{2 * SAVED}: the checkpoint could not be written .*{re.escape(str(checkpoint))}, and"
    with pytest.raises(OSError, match=message):
        cut.train(resume_from_checkpoint=str(checkpoint))
    assert [path.name for path in small_disk.glob("checkpoint-*")] == [checkpoint.name]
    assert complete_checkpoints(small_disk) == [checkpoint]
    filler.unlink()
    resumed, straight = new_trainer(small_disk, 0.0, 1), new_trainer(small_disk / "straight", 0.0, 1)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    straight.train()
    assert resumed.state.global_step == UPDATES
    torch.testing.assert_close(resumed.model.state_dict(), straight.model.state_dict(), rtol=0, atol=0)


STILL = {"learning_rate": 0.0, "eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "loss"}
STILL |= {"save_strategy": "steps", "save_steps": 1}


def test_a_run_that_its_evaluations_have_ended_has_ended(tmp_path: Path) -> None:
    """Killed afterwards, it is not trained until they end it once more; unless with more patience."""
    run = new_trainer(tmp_path, 0.0, 1, EarlyStoppingCallback(2), **STILL)
    run.train()
    assert run.state.global_step == 3
    again = new_trainer(tmp_path, 0.0, 1, EarlyStoppingCallback(2), **STILL)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 3
    patient = new_trainer(tmp_path, 0.0, 1, EarlyStoppingCallback(4), **STILL)
    patient.train(resume_from_checkpoint=True)
    assert patient.state.global_step == 5


def test_a_run_may_go_on_with_a_callback_that_its_checkpoint_does_not_know(tmp_path: Path) -> None:
    new_trainer(tmp_path, 0.0, 1, StopAfter(2), **STILL).train()
    resumed = new_trainer(tmp_path, 0.0, 1, EarlyStoppingCallback(3), **STILL)
    resumed.train(resume_from_checkpoint=True)
    state = json.loads((tmp_path / f"checkpoint-{resumed.state.global_step}" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["EarlyStoppingCallback"]["attributes"] == {"early_stopping_patience_counter": 3}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A run that was stopped after two checkpoints."""
    folder = tmp_path_factory.mktemp("saved")
    new_trainer(folder, 0.1, 1, SaveAfter(SAVED), StopAfter(2 * SAVED)).train()
    return folder


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> dict[str, torch.Tensor]:
    """The weights of the run when nothing stops it."""
    trainer = new_trainer(tmp_path_factory.mktemp("straight"), 0.1, 1)
    trainer.train()
    return trainer.model.state_dict()


@pytest.fixture
def run(saved, tmp_path) -> Path:
    """A copy of the run that was stopped."""
    return shutil.copytree(saved, tmp_path / "run")


def newest(run: Path) -> Path:
    return run / f"checkpoint-{2 * SAVED}"


def continued(run: Path) -> dict[str, torch.Tensor]:
    trainer = new_trainer(run, 0.1, 1)
    torch.manual_seed(12345)
    trainer.train(resume_from_checkpoint=True)
    return trainer.model.state_dict()


@pytest.mark.parametrize("harm", [removed, truncated, bit_flipped])
@pytest.mark.parametrize("name", LOADED)
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_taken(run, caplog, name, harm):
    harm(newest(run) / name)
    assert newest_whole_checkpoint(run) == run / f"checkpoint-{SAVED}"
    assert re.fullmatch(rf"\S+/checkpoint-{2 * SAVED} is skipped: {re.escape(name)} .*", caplog.messages[0])
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("name", "harm"), [("optimizer.pt", removed), ("rng_state.pth", bit_flipped)])
def test_a_run_ends_as_if_its_last_checkpoint_had_not_been_damaged(run, straight, name, harm):
    harm(newest(run) / name)
    torch.testing.assert_close(continued(run), straight, rtol=0, atol=0)


def test_a_damaged_checkpoint_that_is_named_is_refused(run):
    truncated(newest(run) / "optimizer.pt")
    with pytest.raises(ValueError, match=rf"checkpoint-{2 * SAVED}: optimizer\.pt has [\d,]+ bytes, and [\d,]+ were"):
        new_trainer(run, 0.1, 1).train(resume_from_checkpoint=str(newest(run)))


def test_no_whole_checkpoint_is_no_new_beginning(run):
    for checkpoint in complete_checkpoints(run):
        bit_flipped(checkpoint / "scheduler.pt")
    with pytest.raises(ValueError, match="holds no whole checkpoint"):
        new_trainer(run, 0.1, 1).train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"files": {"optimizer.pt": 3}}', '{"files": {"config.json": {}}}']
)
def test_a_damaged_manifest_is_no_traceback(run, content):
    (newest(run) / "manifest.json").write_text(content)
    assert damage(newest(run)) == "manifest.json is damaged"


def test_a_checkpoint_without_manifest_is_taken_if_it_is_complete(run, straight, caplog):
    (newest(run) / "manifest.json").unlink()
    assert newest_whole_checkpoint(run) == newest(run)
    assert "has no manifest.json: only whether its files are complete was checked" in caplog.text
    torch.testing.assert_close(continued(run), straight, rtol=0, atol=0)


@pytest.mark.parametrize("harm", [removed, truncated])
@pytest.mark.parametrize("name", LOADED[1:])
def test_a_checkpoint_without_manifest_that_was_cut_off_is_not(run, name, harm):
    (newest(run) / "manifest.json").unlink()
    harm(newest(run) / name)
    assert damage(newest(run)).startswith(name)


def test_a_checkpoint_of_weights_alone_is_not_continued(tmp_path, caplog):
    trainer = new_trainer(tmp_path, 0.0, 1, StopAfter(SAVED))
    trainer.args.save_only_model = True
    trainer.train()
    assert newest_whole_checkpoint(tmp_path) is None
    assert "optimizer.pt is missing (was it saved with save_only_model?)" in caplog.text
    assert last_whole_weights(tmp_path, 2) == [tmp_path / f"checkpoint-{SAVED}"]


def test_a_kill_before_the_manifest_costs_nothing(tmp_path, straight, monkeypatch):
    def kill(checkpoint):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(checkpoints, "write_manifest", kill)
        new_trainer(tmp_path, 0.1, 1, StopAfter(SAVED)).train()
    assert newest_whole_checkpoint(tmp_path) == tmp_path / f"checkpoint-{SAVED}"
    torch.testing.assert_close(continued(tmp_path), straight, rtol=0, atol=0)


def test_what_was_left_of_a_checkpoint_is_not_mixed_with_a_new_one(run):
    bit_flipped(newest(run) / "optimizer.pt")
    (newest(run) / "rng_state_1.pth").write_bytes(b"of another process")
    new_trainer(run, 0.1, 1, StopAfter(2 * SAVED)).train(resume_from_checkpoint=True)
    assert damage(newest(run)) is None
    assert not (newest(run) / "rng_state_1.pth").exists()


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


def test_the_next_best_checkpoint_takes_the_place_of_a_damaged_one(run, caplog):
    scores = {SAVED: 20.0, 2 * SAVED: 30.0, 3 * SAVED: 25.0}  # of the last there is no checkpoint
    assert best_whole_checkpoint(newest(run), scores, True) == newest(run)
    truncated(newest(run) / "model.safetensors")
    assert best_whole_checkpoint(newest(run), scores, True) == run / f"checkpoint-{SAVED}"
    removed(run / f"checkpoint-{SAVED}" / "model.safetensors")
    assert best_whole_checkpoint(newest(run), scores, True) is None
    assert "the last weights are kept" in caplog.text


@pytest.mark.parametrize(("greater_is_better", "step"), [(True, 2), (False, 1)])
def test_the_next_best_checkpoint_is_that_of_the_metric(tmp_path, monkeypatch, greater_is_better, step):
    folders = [tmp_path / f"checkpoint-{number}" for number in (1, 2, 3)]
    for folder in folders:
        folder.mkdir()
        (folder / "trainer_state.json").write_text("{}")
    monkeypatch.setattr(checkpoints, "damaged_weights", lambda path: "gone" if path == folders[2] else None)
    found = best_whole_checkpoint(folders[2], {1: 20.0, 2: 25.0, 3: 30.0}, greater_is_better)
    assert found == folders[step - 1]


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
    for step, found in ((1, str(tmp_path / "checkpoint-1")), (9, None), (None, None)):
        state = TrainerState(best_global_step=step)
        BestInFolder().on_train_begin(trainer.args, state, TrainerControl())
        assert state.best_model_checkpoint == found
    trainer.args.load_best_model_at_end = True  # it may be gone with its folder, which the end of the run will say
    for known, found in ((None, str(tmp_path / "checkpoint-9")), ("elsewhere/checkpoint-9", "elsewhere/checkpoint-9")):
        state = TrainerState(best_global_step=9, best_model_checkpoint=known)
        BestInFolder().on_train_begin(trainer.args, state, TrainerControl())
        assert state.best_model_checkpoint == found


def test_a_run_that_goes_on_saves_as_often_as_it_is_told_now(tmp_path):
    for interval, stop in ((SAVED, SAVED), (1, UPDATES)):
        trainer = new_trainer(tmp_path, 0.0, 1, StopAfter(stop))
        trainer.args.save_strategy, trainer.args.save_steps = "steps", interval
        trainer.train(resume_from_checkpoint=interval == 1)
    found = [int(path.name.split("-")[1]) for path in complete_checkpoints(tmp_path)]
    assert found == [SAVED, *range(SAVED + 1, UPDATES + 1)]


def test_the_loss_of_a_run_is_that_of_all_its_updates(tmp_path):
    """To the bit, wherever it was interrupted and however seldom it logs."""
    losses, tokens = [], []
    for folder, stops in (("straight", [UPDATES]), ("interrupted", [SAVED, UPDATES, UPDATES])):
        for leg, stop in enumerate(stops):
            trainer = new_trainer(tmp_path / folder, 0.1, 1, SaveAfter(SAVED), StopAfter(stop))
            trainer.args.logging_steps = 5
            output = trainer.train(resume_from_checkpoint=leg > 0)
            assert output.training_loss == output.metrics["train_loss"]
        history = trainer.state.log_history
        losses.append([output.training_loss, *(row["loss"] for row in history if "loss" in row)])
        tokens.append(sum(row.get("target_tokens", 0) for row in history))
    assert losses[0] == losses[1] and len(losses[0]) == 1 + 3  # after 3, 5 and 9 updates
    assert tokens[0] == tokens[1]
    every = new_trainer(tmp_path / "every", 0.1, 1)
    every.train()
    each = [row["loss"] for row in every.state.log_history if "loss" in row]
    assert losses[0][0] == pytest.approx(sum(each) / UPDATES)
