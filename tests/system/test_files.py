"""Files and folders that appear whole."""

import math
import os
import stat
import time

import pytest
import torch
from finished_run import toy_results
from safetensors.torch import save_file

from admin_nmt.decoding.file_translation import PartialFile
from admin_nmt.hub.run_folder import Results, write_results
from admin_nmt.system.files import json_text, new_folder, whole_file, whole_files, write_text_whole


def test_a_file_takes_its_name_in_the_end(tmp_path):
    path = tmp_path / "text"
    path.write_text("old")
    with whole_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old" and temporary.parent == tmp_path
    assert path.read_text() == "new"
    assert [*tmp_path.iterdir()] == [path]


def test_an_error_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "text"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as temporary:
        temporary.write_text("ne")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_two_writers_do_not_meet(tmp_path):
    with whole_file(tmp_path / "text") as one, whole_file(tmp_path / "text") as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "text").read_text() == "one"  # which was finished last


def test_text_and_permissions_are_those_of_any_new_file(tmp_path):
    mask = os.umask(0o027)
    try:
        write_text_whole(tmp_path / "text", "ω\r\nx\n")
    finally:
        os.umask(mask)
    assert (tmp_path / "text").read_bytes() == "ω\r\nx\n".encode()
    assert stat.S_IMODE((tmp_path / "text").stat().st_mode) == 0o640


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "other").write_text("mine")
    (tmp_path / "text").symlink_to(tmp_path / "other")
    write_text_whole(tmp_path / "text", "new")
    assert (tmp_path / "other").read_text() == "mine"
    assert not (tmp_path / "text").is_symlink()


def test_files_move_together_or_not_at_all(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(ValueError), whole_files(tmp_path) as draft:
        (draft / "a").write_text("new")
        raise ValueError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]
    with whole_files(tmp_path) as draft:
        (draft / "a").write_text("new")
        (draft / "b").write_text("too")
    assert sorted((path.name, path.read_text()) for path in tmp_path.iterdir()) == [("a", "new"), ("b", "too")]


def test_a_folder_that_holds_something_is_not_written_over(tmp_path):
    with new_folder(tmp_path / "out") as temporary:
        (temporary / "a").write_text("x")
    assert (tmp_path / "out" / "a").read_text() == "x"
    with pytest.raises(ValueError, match="out: exists already"), new_folder(tmp_path / "out"):
        pass


def leave(path, days: float):
    """What a killed process left under a temporary name so long ago."""
    then = time.time() - 86400 * days
    if path.suffix:
        path.mkdir()
        (path / "weights").write_text("half")
        os.utime(path / "weights", (then, then))
    else:
        path.write_text("half")
    os.utime(path, (then, then))


def test_leftovers_of_killed_processes_do_not_pile_up(tmp_path):
    """Old ones of the same name go, those of other names or of yesterday's writers stay."""
    old, young, other = (f"{number:016x}" for number in range(3))
    for name, days in ((f".text-{old}", 2), (f".text-{young}", 0.5), (f".texts-{other}", 2), (".text-notes", 2)):
        leave(tmp_path / name, days)
    write_text_whole(tmp_path / "text", "new")
    assert {path.name for path in tmp_path.iterdir()} == {"text", f".text-{young}", f".texts-{other}", ".text-notes"}


def test_leftover_folders_go_once_nothing_in_them_changes(tmp_path):
    old, young = (tmp_path / f".model.x-{number:016x}" for number in range(2))
    leave(old, 2)
    leave(young, 2)
    (young / "weights").touch()
    with new_folder(tmp_path / "model.x"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"model.x", young.name}


def test_a_link_among_the_leftovers_is_removed_and_not_followed(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("mine")
    link = tmp_path / f".text-{0:016x}"
    link.symlink_to(tmp_path / "kept")
    os.utime(link, (0, 0), follow_symlinks=False)
    write_text_whole(tmp_path / "text", "new")
    assert not link.is_symlink() and (tmp_path / "kept" / "file").read_text() == "mine"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_folders_have_the_permissions_of_any_new_folder(tmp_path, mask):
    before = os.umask(mask)
    try:
        with new_folder(tmp_path / "out") as temporary:
            assert stat.S_IMODE(temporary.stat().st_mode) == 0o777 & ~mask
            save_file({"a": torch.zeros(1)}, temporary / "model.safetensors")
        with whole_files(tmp_path / "out") as draft:
            (draft / "a").write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777 & ~mask
    for name in ("a", "model.safetensors"):
        assert stat.S_IMODE((tmp_path / "out" / name).stat().st_mode) == 0o666 & ~mask


def planted(tmp_path, name, victim):
    """A link of a foreseeable name, in place before the library writes there."""
    (tmp_path / name).symlink_to(victim)


@pytest.mark.parametrize("suffix", [".tmp", ".new", ""])
def test_links_under_foreseeable_names_lead_nobody_elsewhere(tmp_path, suffix):
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("mine")
    folder.mkdir()
    for name in ("results.json", "recipe.yaml", "out.partial.json"):
        planted(folder, name + suffix, victim)
    write_results(folder, Results(**toy_results()))
    write_text_whole(folder / "recipe.yaml", "x: 1\n")
    with PartialFile(folder / "out", {}) as file:
        file.append(["a"], ["b"])
    assert victim.read_text() == "mine"


def test_translations_are_not_appended_through_a_link(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    planted(tmp_path, "out.partial", victim)
    with pytest.raises(OSError, match="is a link"), PartialFile(tmp_path / "out", {}):
        pass
    assert victim.read_text() == "mine"
    assert not (tmp_path / "out.partial.lock").exists()


def test_json_has_no_numbers_that_are_not_finite():
    value = {"a": [math.nan, 1.5, (math.inf, -math.inf)], "b": "NaN", "c": True}
    assert json_text(value) == '{"a": [null, 1.5, [null, null]], "b": "NaN", "c": true}'
