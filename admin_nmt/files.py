"""Files and folders that appear when they are complete, or not at all, and JSON that every program reads."""

import json
import math
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A new, empty file beside `path` to write to, which takes its name in the end and is removed on errors.

    Its own name cannot be foreseen and no file of that name existed, so two processes do not write into one file, and
    nobody is led to another place by a link. It has the permissions that any new file has.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
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
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as name:
        yield Path(name)
        for file in sorted(Path(name).iterdir()):
            file.replace(Path(folder) / file.name)


@contextmanager
def new_folder(target: str | Path) -> Iterator[Path]:
    """A temporary folder to write into, which takes the name `target` once all is written and is removed on errors.

    Raises:
        ValueError: `target` exists and is not empty.
    """
    target = Path(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target}: exists already; remove it or choose another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.replace(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def json_text(value: Any, indent: int | None = None) -> str:
    """A value as JSON, with null for a number that is not finite, of which JSON has none."""
    return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
