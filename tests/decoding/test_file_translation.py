"""A translation of a file that is stopped anywhere and started again gives the file of one that was not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import Killed, KilledAfter

from admin_nmt.decoding.file_translation import PartialFile, chunks, one_line, translate_file
from admin_nmt.decoding.worker_processes import one_after_the_other

SETTINGS = {"model": "abc", "num_beams": 5}


def reverser(limit: int | None = None) -> KilledAfter:
    """Reverses lines; after `limit` calls it is killed."""
    return KilledAfter(lambda line: line[::-1], limit)


def run(
    output: Path, lines: list[str], *, settings: dict = SETTINGS, limit: int | None = None, size: int = 3
) -> KilledAfter:
    translate = reverser(limit)
    with PartialFile(output, settings) as file:
        in_order = one_after_the_other(lambda part: list(map(one_line, translate(part))))
        translate_file(in_order, lines, file, chunk_size=size)
    return translate


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


LINES = [f"line {number}" for number in range(10)]
TRANSLATED = "".join(f"{line[::-1]}\n" for line in LINES)


def test_uninterrupted(tmp_path):
    assert run(tmp_path / "out", LINES).calls == 4
    assert (tmp_path / "out").read_text() == TRANSLATED
    assert leftovers(tmp_path) == ["out"]


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_goes_on_after_a_stop(tmp_path, limit):
    with pytest.raises(Killed):
        run(tmp_path / "out", LINES, limit=limit)
    assert leftovers(tmp_path) == (["out.partial", "out.partial.json"] if limit else [])
    assert run(tmp_path / "out", LINES).calls == 4 - limit
    assert (tmp_path / "out").read_text() == TRANSLATED
    assert leftovers(tmp_path) == ["out"]


def killed_before_the_first_record(output: Path) -> None:
    """What SIGKILL leaves behind while the first chunk is on its way to the disk."""
    with PartialFile(output, SETTINGS) as file:
        record = file.record.read_text()
    output.with_name("out.partial").write_text("half of a chu")
    output.with_name("out.partial.json").write_text(record)


def test_goes_on_after_a_kill_within_the_first_chunk(tmp_path):
    killed_before_the_first_record(tmp_path / "out")
    assert run(tmp_path / "out", LINES).calls == 4
    assert (tmp_path / "out").read_text() == TRANSLATED
    assert leftovers(tmp_path) == ["out"]


def test_the_first_chunk_has_settings_too(tmp_path):
    killed_before_the_first_record(tmp_path / "out")
    with pytest.raises(ValueError, match="made with num_beams 5, not 1"):
        run(tmp_path / "out", LINES, settings=SETTINGS | {"num_beams": 1})


def test_a_record_without_lines_binds_nobody(tmp_path):
    """A kill right after the start, before anything was written."""
    with PartialFile(tmp_path / "out", SETTINGS) as file:
        record = file.record.read_text()
    (tmp_path / "out.partial").touch()
    (tmp_path / "out.partial.json").write_text(record)
    assert run(tmp_path / "out", LINES, settings=SETTINGS | {"num_beams": 1}).calls == 4


@given(st.lists(st.text(), max_size=12), st.integers(0, 4), st.binary(max_size=9))
def test_any_lines_any_stop_any_rest(tmp_path_factory, lines, limit, rest):
    """Sources with odd characters; a stop, and half of a chunk behind the last recorded one."""
    folder = tmp_path_factory.mktemp("translation")
    try:
        run(folder / "out", lines, limit=limit)
    except Killed:
        if (folder / "out.partial").exists():
            with (folder / "out.partial").open("ab") as file:
                file.write(rest)
        run(folder / "out", lines)
    run(folder / "straight", lines)
    written = (folder / "out").read_bytes()
    assert written == (folder / "straight").read_bytes()
    assert written.count(b"\n") == len(lines)


def test_other_settings_are_refused_by_name(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path / "out", LINES, limit=2)
    with pytest.raises(ValueError, match="num_beams"):
        run(tmp_path / "out", LINES, settings=SETTINGS | {"num_beams": 1})
    with pytest.raises(ValueError, match="backend"):
        run(tmp_path / "out", LINES, settings=SETTINGS | {"backend": "ctranslate2"})
    assert run(tmp_path / "out", LINES).calls == 2


@pytest.mark.parametrize("lines", [["line 0", "other", *LINES[2:]], LINES[:5]], ids=["changed", "shorter"])
def test_other_sources_are_refused(tmp_path, lines):
    with pytest.raises(Killed):
        run(tmp_path / "out", LINES, limit=2)
    with pytest.raises(ValueError, match="the first 6 lines of the input are not those"):
        run(tmp_path / "out", lines)
    run(tmp_path / "out", LINES)
    assert (tmp_path / "out").read_text() == TRANSLATED


def test_an_input_may_grow(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path / "out", LINES, limit=2)
    run(tmp_path / "out", [*LINES, "more"])
    assert (tmp_path / "out").read_text() == TRANSLATED + "erom\n"


@pytest.mark.parametrize("damage", ["", "{", None])
def test_a_lost_record_is_refused(tmp_path, damage):
    with pytest.raises(Killed):
        run(tmp_path / "out", LINES, limit=2)
    record = tmp_path / "out.partial.json"
    record.unlink() if damage is None else record.write_text(damage)
    with pytest.raises(ValueError, match=r"out\.partial\.json"):
        run(tmp_path / "out", LINES)


def test_a_shortened_file_is_refused(tmp_path):
    with pytest.raises(Killed):
        run(tmp_path / "out", LINES, limit=2)
    (tmp_path / "out.partial").write_text("x\n")
    with pytest.raises(ValueError, match="shorter than it was"):
        run(tmp_path / "out", LINES)


WRITER = """
import sys
from admin_nmt.decoding.file_translation import PartialFile
with PartialFile(sys.argv[1], {}):
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("ends", ["closes", "killed"])
def test_a_second_process_is_refused(tmp_path, ends):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path / "out"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(ValueError, match=r"out\.partial is being written by another process"):
            run(tmp_path / "out", LINES)
        assert leftovers(tmp_path) == ["out.partial", "out.partial.json", "out.partial.lock"]
        if ends == "killed":
            process.kill()
    assert leftovers(tmp_path) == ([] if ends == "closes" else ["out.partial", "out.partial.json", "out.partial.lock"])
    run(tmp_path / "out", LINES)
    assert leftovers(tmp_path) == ["out"]


def test_an_older_output_stays_until_the_end(tmp_path):
    (tmp_path / "out").write_text("old\n")
    with pytest.raises(Killed):
        run(tmp_path / "out", LINES, limit=2)
    assert (tmp_path / "out").read_text() == "old\n"
    assert json.loads((tmp_path / "out.partial.json").read_text())["lines"] == 6
    run(tmp_path / "out", LINES)
    assert (tmp_path / "out").read_text() == TRANSLATED


def test_no_folder_for_the_output(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no such folder; create it first: .*absent"):
        run(tmp_path / "absent" / "out", LINES)
    assert leftovers(tmp_path) == []


def test_several_lines_of_a_source_shift_nothing(tmp_path):
    """As with n-best lists; what one source takes is one line otherwise."""

    def twice(limit: int | None = None):
        return one_after_the_other(KilledAfter(lambda line: f"{line}\n{line}", limit))

    with pytest.raises(Killed), PartialFile(tmp_path / "out", SETTINGS) as file:
        translate_file(twice(1), LINES, file, chunk_size=4)
    with PartialFile(tmp_path / "out", SETTINGS) as file:
        assert file.lines == 4
        translate_file(twice(), LINES, file, chunk_size=4)
    assert (tmp_path / "out").read_text() == "".join(f"{line}\n{line}\n" for line in LINES)


@given(st.lists(st.text()), st.integers(1, 5))
def test_chunks_lose_nothing(lines, size):
    parts = list(chunks(lines, size))
    assert [line for part in parts for line in part] == lines
    assert all(len(part) == size for part in parts[:-1])
