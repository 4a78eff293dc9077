"""Lines of UTF-8 text, of files and of what others send."""

import codecs
import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

LONGEST_LINE = 2**24  # bytes, its end included


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 file, gzipped if its name ends in `.gz`, without their line feeds.

    Lines end at a line feed and nowhere else; a carriage return before it and a byte order mark at the start of the
    file are dropped.

    Raises:
        ValueError: naming file and line, for invalid UTF-8, an empty or damaged file.
    """
    opener: Callable[..., Any] = gzip.open if str(path).endswith(".gz") else open
    number = 0
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(decode_lines(file, path), 1):  # noqa: B007 (the errors below count lines)
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged gzip data after line {number} ({error}); fetch the file again") from error
    if not number:
        raise ValueError(f"{path}: the file is empty")


def decode_lines(file: IO[bytes], name: str | Path) -> Iterator[str]:
    """The lines of an open binary file, as `read_lines` gives them; `name` is what errors call it."""
    for number, raw in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
        if len(raw) > LONGEST_LINE:  # a few kilobytes of gzip can be one line of any length
            raise ValueError(f"{name}: line {number} is longer than {LONGEST_LINE:,} bytes; give one sentence a line")
        yield _decode(raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw, name, number)


CONVERT = "convert the file to UTF-8"
# What a file that is no UTF-8 text begins with, and what to do then.
OTHER_FILES = (
    (codecs.BOM_UTF16_LE, f"{CONVERT}, such as iconv -f UTF-16 -t UTF-8 {{path}} > new"),
    (codecs.BOM_UTF16_BE, f"{CONVERT}, such as iconv -f UTF-16 -t UTF-8 {{path}} > new"),
    (b"PK", "it looks like a document or an archive: save it as plain text, one sentence a line"),
)


def _decode(raw: bytes, path: str | Path, number: int) -> str:
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        known = next((hint for start, hint in OTHER_FILES if number == 1 and raw.startswith(start)), CONVERT)
        raise ValueError(
            f"{path}: line {number} is not valid UTF-8 (byte {raw[error.start]:#04x} at column {error.start + 1}); "
            f"{known.format(path=path)}"
        ) from error
