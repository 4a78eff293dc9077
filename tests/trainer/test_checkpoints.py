"""Which checkpoints of a run count, and what a full disk leaves of them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from distributed_worker import SAVED, UPDATES, new_trainer
from toy import StopAfter

from admin_nmt.trainer.checkpoints import checkpoint_being_written, complete_checkpoints, settle_best_checkpoint


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


def test_no_folder_has_no_checkpoints(tmp_path: Path) -> None:
    assert complete_checkpoints(tmp_path / "absent") == []


def test_other_errors_keep_their_message_and_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    with pytest.raises(RuntimeError, match="another rank"), checkpoint_being_written(folder):
        raise RuntimeError("another rank has gone")
    assert folder.exists()


def test_a_checkpoint_that_was_finished_stays_whatever_fails_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    with pytest.raises(OSError, match=r"^no space for the push$"), checkpoint_being_written(folder):
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


@pytest.mark.parametrize(("best", "settled"), [("away/checkpoint-1", "checkpoint-1"), ("away/checkpoint-9", None)])
def test_the_best_checkpoint_of_a_run_that_was_moved(tmp_path, best, settled):
    for step in (1, 2):
        (tmp_path / f"checkpoint-{step}").mkdir()
    path = tmp_path / "checkpoint-2" / "trainer_state.json"
    path.write_text(json.dumps({"best_model_checkpoint": best, "global_step": 2}))
    settle_best_checkpoint(path.parent)
    expected = best if settled is None else str(tmp_path / settled)
    assert json.loads(path.read_text()) == {"best_model_checkpoint": expected, "global_step": 2}
