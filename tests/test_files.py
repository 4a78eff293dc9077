"""Files and folders that appear whole."""

import math
import os
import stat

import pytest

from admin_nmt.files import json_text, new_folder, whole_file, whole_files, write_text_whole


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


def test_json_has_no_numbers_that_are_not_finite():
    value = {"a": [math.nan, 1.5, (math.inf, -math.inf)], "b": "NaN", "c": True}
    assert json_text(value) == '{"a": [null, 1.5, [null, null]], "b": "NaN", "c": true}'
