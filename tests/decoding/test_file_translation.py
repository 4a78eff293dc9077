"""A translation of a file that is stopped anywhere and started again gives the file of one that was not."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import Killed, KilledAfter

from admin_nmt.decoding.file_translation import PartialFile, one_line, translate_file
from admin_nmt.decoding.worker_processes import one_after_the_other

SETTINGS = {"model": "abc", "num_beams": 5}


def run(
    output: Path, lines: list[str], *, settings: dict = SETTINGS, limit: int | None = None, size: int = 3
) -> KilledAfter:
    """Reverses lines; after `limit` calls it is killed."""
    translate = KilledAfter(lambda line: line[::-1], limit)
    with PartialFile(output, settings) as file:
        in_order = one_after_the_other(lambda part: list(map(one_line, translate(part))))
        translate_file(in_order, lines, file, chunk_size=size)
    return translate


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


LINES = [f"line {number}" for number in range(10)]
TRANSLATED = "".join(f"{line[::-1]}\n" for line in LINES)


@pytest.fixture
def stopped(tmp_path) -> Path:
    """An output whose translation was killed after 6 of its 10 lines."""
    with pytest.raises(Killed):
        run(tmp_path / "out", LINES, limit=2)
    return tmp_path / "out"


@pytest.mark.parametrize(("written", "bound"), [("half of a chu", True), ("", False)])
def test_goes_on_after_a_kill_within_the_first_chunk(tmp_path, written, bound):
    """Its settings count as soon as something is written."""
    with PartialFile(tmp_path / "out", SETTINGS) as file:
        record = file.record.read_text()
    (tmp_path / "out.partial").write_text(written)
    (tmp_path / "out.partial.json").write_text(record)
    if bound:
        with pytest.raises(ValueError, match="num_beams"):
            run(tmp_path / "out", LINES, settings=SETTINGS | {"num_beams": 1})
    assert run(tmp_path / "out", LINES, settings=SETTINGS | ({} if bound else {"num_beams": 1})).calls == 4
    assert (tmp_path / "out").read_text() == TRANSLATED
    assert leftovers(tmp_path) == ["out"]


@settings(max_examples=25)
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


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"settings": SETTINGS | {"num_beams": 1}}, "num_beams"),
        ({"lines": ["line 0", "other", *LINES[2:]]}, "first 6 lines"),
        ({"lines": LINES[:5]}, "first 6 lines"),
    ],
)
def test_another_translation_does_not_go_on(stopped, options, named):
    with pytest.raises(ValueError, match=named):
        run(stopped, **{"lines": LINES} | options)
    assert leftovers(stopped.parent) == ["out.partial", "out.partial.json"]
    assert run(stopped, LINES).calls == 2
    assert stopped.read_text() == TRANSLATED
    assert leftovers(stopped.parent) == ["out"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("out.partial.json", "{"), ("out.partial.json", None), ("out.partial", "x\n")],
)
def test_a_damaged_partial_file_is_refused(stopped, name, content):
    path = stopped.with_name(name)
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(ValueError, match=name):
        run(stopped, LINES)


def test_an_input_may_grow_and_an_older_output_stays_until_the_end(stopped):
    stopped.write_text("old\n")
    with pytest.raises(Killed):
        run(stopped, [*LINES, "more"], limit=1)
    assert stopped.read_text() == "old\n"
    run(stopped, [*LINES, "more"])
    assert stopped.read_text() == TRANSLATED + "erom\n"


def test_a_second_process_is_refused(tmp_path):
    """The lock of one that was killed is nobody's."""
    (tmp_path / "out.partial.lock").touch()
    with PartialFile(tmp_path / "out", {}):
        with pytest.raises(ValueError, match="another process"):
            run(tmp_path / "out", LINES)
        assert leftovers(tmp_path) == ["out.partial", "out.partial.json", "out.partial.lock"]
    assert leftovers(tmp_path) == []
