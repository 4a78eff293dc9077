"""Checksums of cached files: one that is damaged is found when it is opened, and made again.

Like a gzip file, a cached file ends with a CRC-32 and the size of what stands before them, so that both appear in one
step; readers of an Arrow stream stop before them. Every flipped bit and every cut is found, at the cost of reading the
file once whenever it is opened: 0.2 to 1 second a GB and core, and what the disk needs.
"""

import json
import logging
import os
import shutil
import struct
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

logger = logging.getLogger(__name__)

TRAILER = struct.Struct("<IQ")
BLOCK = 1 << 22
SUMS = "checksums.json"


def _crc32(file: BinaryIO, size: int) -> int:
    """CRC-32 of the next `size` bytes."""
    crc = 0
    while size > 0 and (block := file.read(min(size, BLOCK))):
        crc = zlib.crc32(block, crc)
        size -= len(block)
    return crc


def add_checksum(path: Path) -> None:
    """Append the trailer to a file."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        trailer = TRAILER.pack(_crc32(file, size), size)
        file.write(trailer)


def is_whole(path: Path) -> bool:
    """Tell whether this is a file with a trailer that fits it."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size - TRAILER.size
            return size > 0 and TRAILER.pack(_crc32(file, size), size) == file.read()
    except OSError:  # absent, a folder, on a bad block
        return False


def all_whole(paths: Iterable[Path]) -> list[bool]:
    """`is_whole` of each file, on all cores."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(is_whole, paths))


def _sums(folder: Path) -> dict[str, int]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != SUMS]
    return {path.relative_to(folder).as_posix(): _crc32_of(path) for path in files}


def _crc32_of(path: Path) -> int:
    with path.open("rb") as file:
        return _crc32(file, os.fstat(file.fileno()).st_size)


def write_checksums(folder: Path) -> None:
    """Note the checksums of a folder whose files other programs read, so that no trailer may change them."""
    (folder / SUMS).write_text(json.dumps(_sums(folder), indent=1), encoding="utf-8")


def folder_is_whole(folder: Path) -> bool:
    """Tell whether the files of a folder are those of which `write_checksums` took note."""
    try:
        return bool(json.loads((folder / SUMS).read_bytes()) == _sums(folder))
    except (OSError, ValueError):
        return False


def discard(path: Path) -> None:
    """Remove what is damaged in a cache, file or folder, if it is there, and say so."""
    if not os.path.lexists(path):
        return
    logger.warning("%s is damaged; it is made again", path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
