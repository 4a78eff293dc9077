"""Lines from someone who waits for answers: a terminal, or a pipe that another program writes to."""

import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any


def arriving(lines: Iterable[str], size: int, latency: float) -> Iterator[list[str]]:
    """Lists of the lines that have come: at most `size`, and those within `latency` seconds after the first of them.

    Lines that came during the work on a list make the next one at once, so lists are full where lines come faster than
    they are translated. A thread reads ahead, at most `size` lines.

    Raises:
        Exception: what `lines` raises, after the lines before it.
    """
    queue: Queue[tuple[float, str | Exception | None]] = Queue(maxsize=size)
    threading.Thread(target=_read, args=(lines, queue), daemon=True).start()
    while True:
        since, line = queue.get()
        found: list[str] = []
        while isinstance(line, str):
            found.append(line)
            if len(found) == size:
                break
            try:
                _, line = queue.get(timeout=max(0.0, since + latency - time.monotonic()))
            except Empty:
                break
        if found:
            yield found
        if line is None:
            return
        if isinstance(line, Exception):
            raise line


def _read(lines: Iterable[str], queue: Queue[Any]) -> None:
    end: Exception | None = None
    try:
        for line in lines:
            queue.put((time.monotonic(), line))
    except Exception as error:
        end = error
    queue.put((time.monotonic(), end))


def is_live(file: int | Path) -> bool:
    """Tell whether a file, or what a descriptor stands for, can give lines now and others later."""
    try:
        return not stat.S_ISREG(os.stat(file).st_mode)
    except OSError:  # who opens it says why
        return False
