"""Blocks of lines are the lines, and whatever is wrong with a file is left to `read_lines` to tell."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admin_nmt.data import line_blocks
from admin_nmt.data.line_blocks import BLOCK_ERRORS, read_blocks, read_pairs
from admin_nmt.data.parallel_text import read_lines

STRETCHES = [b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"\x00", b"a", b"text ", "ü😀\u2028\x85".encode(), b"\x1c\x0b"]
WRONG = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]


def lines(path):
    return [line.as_py() for block in read_blocks(path) for line in block]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(line_blocks, "BLOCK", 5)
    monkeypatch.setattr(line_blocks, "BATCH", 3)


@settings(max_examples=300, deadline=None)
@given(content=st.lists(st.sampled_from(STRETCHES), min_size=1, max_size=20).map(b"".join), block=st.integers(1, 9))
def test_blocks_are_the_lines(tmp_path_factory, content, block):
    path = tmp_path_factory.mktemp("x") / "x"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_blocks, "BLOCK", block)
        assert lines(path) == list(read_lines(path))


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("place", [0, 2, 7, 30])
def test_what_is_no_text_is_refused(tmp_path, small, wrong, place):
    text = b"a line\nof text\nand another\nthe end\n"
    (tmp_path / "x").write_bytes(text[:place] + wrong + text[place:])
    for read in (read_blocks, read_lines):
        with pytest.raises(ValueError):
            list(read(tmp_path / "x"))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_records_have_the_rows_of_a_batch(tmp_path, small, suffix):
    sides = [[f"{side} {number}" for number in range(8)] for side in "ab"]
    paths = [tmp_path / f"{side}{suffix}" for side in "ab"]
    for path, texts in zip(paths, sides, strict=True):
        content = "\n".join(texts).encode()
        path.write_bytes(gzip.compress(content) if suffix else content)
    batches = list(read_pairs(*paths))
    assert [len(batch) for batch in batches] == [3, 3, 2]
    for side, texts in zip(("source", "target"), sides, strict=True):
        assert [text for batch in batches for text in batch[side].to_pylist()] == texts


@pytest.mark.parametrize(
    ("source", "target"), [(b"a\nb\n", b"a\n"), (b"a\n" * 4, b"a\n" * 9), (b"", b"a\n"), (b"", b"")]
)
def test_files_that_do_not_correspond_are_refused(tmp_path, small, source, target):
    for name, content in (("a", source), ("b", target)):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BLOCK_ERRORS):
        list(read_pairs(tmp_path / "a", tmp_path / "b"))


@pytest.mark.parametrize("end", [b"", b"\n", b"x\n"])
def test_long_lines_are_left_to_the_other_reader(tmp_path, monkeypatch, end):
    monkeypatch.setattr(line_blocks, "LONGEST_LINE", 10)
    monkeypatch.setattr(line_blocks, "BLOCK", 4)
    (tmp_path / "x").write_bytes(b"fine\n" + b"a" * 11 + end)
    with pytest.raises(ValueError, match="too long"):
        lines(tmp_path / "x")


def test_damaged_gzip_is_refused(tmp_path):
    whole = gzip.compress(b"some text\n" * 999)
    for damaged in (whole[:-9], whole[:20] + b"xyz" + whole[23:], b"text"):
        (tmp_path / "x.gz").write_bytes(damaged)
        with pytest.raises(BLOCK_ERRORS):
            lines(tmp_path / "x.gz")
