"""Files and folders that appear when they are complete, or not at all, and JSON that every program reads.

Until they are complete they have a name beside the final one that nobody can foresee and that no file has, so two
processes do not write into one file, and no link leads the writer elsewhere. What killed processes left under such
names is removed by a later writer of the same file or folder, once it is a day old: then nobody writes it any more.
"""

import json
import math
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ABANDONED = 86400.0  # seconds without a change


def _new_name(path: Path) -> Path:
    """A name beside a path for what is to take its place."""
    leftover = re.compile(rf"\.{re.escape(path.name)}-[0-9a-f]{{16}}")
    for other in path.parent.iterdir():
        if leftover.fullmatch(other.name) and _age(other) > ABANDONED:
            _remove(other)
    return path.with_name(f".{path.name}-{secrets.token_hex(8)}")


def _age(path: Path) -> float:
    """Seconds since the last change of a file, or of anything in a folder; 0 if it is gone meanwhile."""
    parts = [path] if path.is_symlink() else [path, *path.rglob("*")]
    try:
        return time.time() - max(part.lstat().st_mtime for part in parts)
    except FileNotFoundError:
        return 0.0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A new, empty file beside `path` to write to, which takes its name in the end and is removed on errors.

    It has the permissions that any new file has.
    """
    path = Path(path)
    temporary = _new_name(path)
    temporary.touch(exist_ok=False)
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text_whole(path: str | Path, text: str) -> None:
    """Write UTF-8 with the line ends that it has to a file, which is there whole or as it was."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


@contextmanager
def whole_files(folder: str | Path) -> Iterator[Path]:
    """A temporary folder to write files into, which move to `folder` once all are complete; on errors none does."""
    temporary = _new_name(Path(folder) / "new")
    temporary.mkdir()
    try:
        yield temporary
        for file in sorted(temporary.iterdir()):
            file.replace(Path(folder) / file.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def new_folder(target: str | Path) -> Iterator[Path]:
    """A temporary folder to write into, which takes the name `target` once all is written and is removed on errors.

    It and its files have the permissions that any new ones have.

    Raises:
        ValueError: `target` exists and is not empty.
    """
    target = Path(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target}: exists already; remove it or choose another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _new_name(target)
    temporary.mkdir()
    try:
        yield temporary
        open_to_readers(temporary)
        temporary.replace(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def open_to_readers(folder: str | Path) -> None:
    """Let whoever may read a folder read its files too: safetensors writes weights that their owner alone can read."""
    mode = Path(folder).stat().st_mode & 0o666
    for path in Path(folder).glob("*.safetensors"):
        path.chmod(mode)


def json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON, with null for a number that is not finite, of which JSON has none."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
