"""Files and folders that appear whole."""

import math
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from finished_run import toy_results
from safetensors.torch import save_file

from admin_nmt.decoding.file_translation import PartialFile
from admin_nmt.hub.run_folder import Results, write_results
from admin_nmt.system.files import json_text, new_folder, whole_file, whole_files, write_text_whole


@pytest.mark.parametrize("whole", [whole_file, lambda path: whole_files(path.parent)])
def test_files_take_their_names_in_the_end_or_not_at_all(tmp_path, whole):
    path = tmp_path / "text"
    path.write_text("old")
    for error, expected in ((KeyboardInterrupt, "old"), (None, "new")):
        with suppress(KeyboardInterrupt), whole(path) as draft:
            file = draft / "text" if draft.is_dir() else draft
            file.write_text("new")
            assert path.read_text() == "old"
            if error:
                raise error
        assert path.read_text() == expected and [*tmp_path.iterdir()] == [path]


def test_a_folder_that_holds_something_is_not_written_over(tmp_path):
    with new_folder(tmp_path / "out") as temporary:
        (temporary / "a").write_text("x")
    assert (tmp_path / "out" / "a").read_text() == "x"
    with pytest.raises(ValueError, match="out"), new_folder(tmp_path / "out"):
        pass


def leave(path: Path, days: float) -> None:
    """What a killed process left under a temporary name so long ago: a file, or a folder if the name has a point."""
    if "." in path.name[1:]:
        path.mkdir()
        leave(path / "weights", days)
    else:
        path.write_text("half")
    os.utime(path, (time.time() - 86400 * days,) * 2)


def test_leftovers_of_killed_processes_do_not_pile_up(tmp_path):
    """Old ones of the same name go, those of other names and of writers who may still be there stay."""
    first, second, third = (f"{number:016x}" for number in range(3))
    kept = {f".text-{second}": 0.5, f".texts-{third}": 2, ".text-notes": 2, f".model.x-{second}": 2}
    for name, days in {f".text-{first}": 2, f".model.x-{first}": 2, **kept}.items():
        leave(tmp_path / name, days)
    (tmp_path / f".model.x-{second}" / "weights").touch()  # something in it has changed lately
    write_text_whole(tmp_path / "text", "new")
    with new_folder(tmp_path / "model.x"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"text", "model.x", *kept}


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_files_and_folders_have_the_permissions_of_any_new_ones(tmp_path, mask):
    before = os.umask(mask)
    try:
        with new_folder(tmp_path / "out") as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o777 & ~mask
            save_file({"a": torch.zeros(1)}, temporary / "model.safetensors")
        with whole_files(tmp_path / "out") as draft:
            (draft / "a").write_text("x")
        write_text_whole(tmp_path / "out" / "b", "ω\r\nx\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777 & ~mask
    for name in ("a", "b", "model.safetensors"):
        assert stat.S_IMODE((tmp_path / "out" / name).stat().st_mode) == 0o666 & ~mask
    assert (tmp_path / "out" / "b").read_bytes() == "ω\r\nx\n".encode()


@pytest.mark.parametrize("suffix", [".tmp", ".new", ""])
def test_links_under_foreseeable_names_lead_nobody_elsewhere(tmp_path, suffix):
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.mkdir()
    (victim / "file").write_text("mine")
    folder.mkdir()
    for name in ("results.json", "recipe.yaml", "out.partial.json"):
        (folder / f"{name}{suffix}").symlink_to(victim / "file")
    leftover = folder / f".recipe.yaml-{0:016x}"
    leftover.symlink_to(victim)
    os.utime(leftover, (0, 0), follow_symlinks=False)
    write_results(folder, Results(**toy_results()))
    write_text_whole(folder / "recipe.yaml", "x: 1\n")
    with PartialFile(folder / "out", {}) as file:
        file.append(["a"], ["b"])
    assert not leftover.is_symlink() and (victim / "file").read_text() == "mine"
    (folder / "more.partial").symlink_to(victim / "file")
    with pytest.raises(OSError, match="more"), PartialFile(folder / "more", {}):
        pass
    assert (victim / "file").read_text() == "mine" and not (folder / "more.partial.lock").exists()


def test_json_has_no_numbers_that_are_not_finite():
    value = {"a": [math.nan, 1.5, (math.inf, -math.inf)], "b": "NaN", "c": True}
    assert json_text(value) == '{"a": [null, 1.5, [null, null]], "b": "NaN", "c": true}'
