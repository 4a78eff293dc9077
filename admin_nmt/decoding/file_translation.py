"""Translation of large files that may be interrupted at any moment: the next run continues after the finished lines."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from errno import ENOENT
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from ..system.files import write_text_whole
from ..system.terminal import progress_bar
from .worker_processes import Parts

PARTIAL, RECORD, LOCK = ".partial", ".partial.json", ".partial.lock"


def chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` lines, the last one shorter."""
    lines = iter(lines)
    while chunk := list(islice(lines, size)):
        yield chunk


def one_line(translation: str) -> str:
    """A translation without line breaks, which would shift all lines after it."""
    return " ".join(translation.splitlines())


def translate_file(
    in_order: Callable[[Iterator[list[str]]], Parts],
    lines: Iterable[str],
    output: "PartialFile",
    *,
    chunk_size: int,
    progress: bool = False,
) -> None:
    """Translate lines into a file, in chunks that are kept once they are written; see [`PartialFile`].

    Args:
        in_order: gives each list of lines with what is written for them; see [`translating`].
        lines: source sentences, those that are finished already included.
        output: an open file; at the end it takes its final name.
        chunk_size: lines that are translated together.
        progress: show a progress bar.

    Raises:
        ValueError: the finished lines are of other sources.
    """
    lines = iter(lines)
    output.skip_finished(lines)
    with progress_bar(desc="lines", unit="line", initial=output.lines, shown=progress) as bar:
        for chunk, written in in_order(chunks(lines, chunk_size)):
            output.append(chunk, written)
            bar.update(len(chunk))
    output.finish()


def _not_through_a_link(path: str, flags: int) -> int:
    """Open a file whose name anyone can foresee; a link there would lead the writing elsewhere, and is an OSError."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


class PartialFile:
    """A file of translations that is written in chunks under a temporary name, and survives SIGKILL in between.

    `OUTPUT.partial` holds the finished lines in order, `OUTPUT.partial.json` the settings, the number of finished lines
    and bytes, and the hash of their sources; it is there before the first line is written. What was written behind the
    last recorded chunk is cut off on opening. Where no chunk was finished, closing leaves neither file behind.
    `OUTPUT.partial.lock` is there while a process writes.

    Args:
        output: the file to write in the end; one that exists is replaced then.
        settings: whatever the translations depend on besides their sources, as JSON: a second run must have the same.

    Raises:
        ValueError: the finished lines are of other settings or sources, or another process is writing the file.
        OSError: the file cannot be written.
    """

    def __init__(self, output: str | Path, settings: Mapping[str, Any]) -> None:
        self.output = Path(output)
        self.partial = self.output.with_name(self.output.name + PARTIAL)
        self.record = self.output.with_name(self.output.name + RECORD)
        self.lock = FileLock(self.output.with_name(self.output.name + LOCK), timeout=0)
        self.settings = dict(settings)
        self.lines = self.bytes = 0
        self.digest = hashlib.sha256()
        self.finished_digest = self.digest.hexdigest()
        self.is_finished = False

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self._lock()
            undo.callback(self._unlock)
            self.file = undo.enter_context(open(self.partial, "ab", opener=_not_through_a_link))
            if self.file.tell():
                self._resume()
            else:
                self._write_record()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()
        if not self.lines and not self.is_finished:
            self.partial.unlink(missing_ok=True)
            self.record.unlink(missing_ok=True)
        self._unlock()

    def _lock(self) -> None:
        if not self.output.parent.is_dir():  # a lock would create it
            raise FileNotFoundError(ENOENT, "there is no such folder; create it first", str(self.output.parent))
        try:
            self.lock.acquire()
        except Timeout as error:
            raise ValueError(f"{self.partial} is being written by another process; wait for it, or end it") from error

    def _unlock(self) -> None:
        with suppress(PermissionError):  # Windows, which deletes no open file, does it on release
            Path(self.lock.lock_file).unlink(missing_ok=True)
        self.lock.release()

    def _resume(self) -> None:
        start_over = f"delete {self.partial} and {self.record} to start over"
        try:
            record = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{self.record} is missing or damaged, so {self.partial} cannot be continued; {start_over}"
            ) from error
        for name in sorted(record["settings"].keys() | self.settings.keys()):
            then, now = record["settings"].get(name), self.settings.get(name)
            if then != now:
                raise ValueError(
                    f"{self.partial} was made with {name} {then}, not {now}; give the same again, or {start_over}"
                )
        if self.file.tell() < record["bytes"]:
            raise ValueError(f"{self.partial} is shorter than it was; {start_over}")
        self.file.truncate(record["bytes"])
        self.lines, self.bytes, self.finished_digest = record["lines"], record["bytes"], record["sources"]

    def skip_finished(self, lines: Iterator[str]) -> None:
        """Take the sources of the finished lines from `lines`.

        Raises:
            ValueError: they are not the ones that were translated.
        """
        for line in islice(lines, self.lines):
            self._count(line)
        if self.digest.hexdigest() != self.finished_digest:
            raise ValueError(
                f"the first {self.lines} lines of the input are not those that {self.partial} translates; give the "
                f"same input, or delete {self.partial} and {self.record} to start over"
            )

    def _count(self, line: str) -> None:
        self.digest.update(line.encode() + b"\n")

    def append(self, sources: Sequence[str], written: Sequence[str]) -> None:
        """Write a chunk and record that it is finished.

        Args:
            written: for each source its line, or several lines that belong to it.
        """
        data = "".join(f"{lines}\n" for lines in written).encode()
        self.file.write(data)
        self.file.flush()
        os.fsync(self.file.fileno())
        for line in sources:
            self._count(line)
        self.lines += len(sources)
        self.bytes += len(data)
        self._write_record()

    def _write_record(self) -> None:
        record = {"settings": self.settings, "lines": self.lines, "bytes": self.bytes}
        record["sources"] = self.digest.hexdigest()
        write_text_whole(self.record, json.dumps(record, indent=2))

    def finish(self) -> None:
        """Give the file its name."""
        self.file.close()  # Windows renames no open file
        self.partial.replace(self.output)
        self.record.unlink(missing_ok=True)
        self.is_finished = True
