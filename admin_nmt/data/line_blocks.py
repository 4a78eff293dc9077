"""Two text files as records of pairs, a few megabytes of lines at a time.

The lines are those of `read_lines`, in a tenth of the time. Where anything is wrong, one of `BLOCK_ERRORS` says no more
than that: `read_lines` then tells the line and what to do.
"""

import codecs
import gzip
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa

from .arrow_cache import BATCH

LONGEST_LINE = 2**24  # bytes, its end included
BLOCK = 2**22  # bytes

BLOCK_ERRORS = (ValueError, EOFError, gzip.BadGzipFile, zlib.error)


def read_pairs(source: str | Path, target: str | Path) -> Iterator[pa.RecordBatch]:
    """The pairs of two UTF-8 files, gzipped where their name ends in `.gz`, in records of `BATCH`.

    Raises:
        One of BLOCK_ERRORS: a file is damaged, empty or no UTF-8 text, has a line that is too long, or fewer lines.
    """
    rows = 0
    for sides in zip_longest(*(_batches(read_blocks(path)) for path in (source, target)), fillvalue=()):
        if len(sides[0]) != len(sides[1]):
            raise ValueError("the files differ in length")
        rows += len(sides[0])
        yield pa.RecordBatch.from_arrays(list(sides), ["source", "target"])
    if not rows:
        raise ValueError("the files are empty")


def read_blocks(path: str | Path) -> Iterator[pa.Array]:
    """The lines of a file, some at a time."""
    rest, start = b"", codecs.BOM_UTF8
    with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
        while block := file.read(BLOCK):
            lines, end, rest = (rest + block).rpartition(b"\n")
            if len(rest) > LONGEST_LINE:
                raise ValueError("a line is too long")
            if end:
                yield _array((lines + end).removeprefix(start))
                start = b""
    if rest:
        yield _array((rest + b"\n").removeprefix(start))


def _array(lines: bytes) -> pa.Array:
    """Lines, each with its line feed, as a column."""
    lines.decode()  # Arrow would take any bytes for text
    if b"\r\n" in lines:
        lines = lines.replace(b"\r\n", b"\n")
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    if np.diff(ends, prepend=-1).max() > LONGEST_LINE - 1:
        raise ValueError("a line may be too long")
    borders = np.append(0, ends - np.arange(len(ends))).astype(np.int32)  # once the line feeds are gone
    text = lines.translate(None, b"\n")
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(borders), pa.py_buffer(text))


def _batches(blocks: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """The same lines, `BATCH` at a time."""
    waiting = pa.array([], pa.string())
    for block in blocks:
        waiting = pa.concat_arrays([waiting, block])
        while len(waiting) >= BATCH:
            yield waiting[:BATCH]
            waiting = waiting[BATCH:]
    if len(waiting):
        yield waiting
