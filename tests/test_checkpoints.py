"""Which checkpoints of a run count."""

from pathlib import Path

from admin_nmt.checkpoints import complete_checkpoints


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
