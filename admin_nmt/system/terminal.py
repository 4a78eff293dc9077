"""Bars and lines that do not get into each other's way; without a terminal there are plain lines alone.

A bar is gone when its work is done. It is drawn to stderr where that is a terminal that can move its cursor; elsewhere,
as in the log of a batch job, it is a line a minute.
"""

import io
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from tqdm import tqdm

LOG_INTERVAL = 60.0  # seconds from one line of a log about the same work to the next


def is_terminal(stream: TextIO) -> bool:
    """True for a terminal that can draw over what it has drawn."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def progress_bar(
    iterable: Iterable[Any] | None = None, *, desc: str, unit: str, shown: bool = True, **options: Any
) -> tqdm:
    """A progress bar.

    Args:
        iterable: what is counted while one goes over it; without, the bar's method `update` counts.
        desc: the work. unit: what is counted, in the singular.
        shown: False for none, such as in all processes but the first.
        options: further ones of tqdm, such as `total`.
    """
    options |= {"desc": desc, "unit": f" {unit}", "leave": False, "disable": not shown}
    if is_terminal(sys.stderr):
        return tqdm(iterable, dynamic_ncols=True, **options)
    every = {"delay": LOG_INTERVAL, "mininterval": LOG_INTERVAL, "miniters": 1}
    return LoggedBar(iterable, **options | every, file=io.StringIO())


class LoggedBar(tqdm):
    """Lines on stderr about work that takes longer than `LOG_INTERVAL`; what a bar writes to move about is lost."""

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Write the bar as a line, but not its end, which would be an empty one."""
        if msg is None:
            print(self, file=sys.stderr, flush=True)


class PlainLines:
    """Lines for a file, a pipe or a notebook."""

    def write(self, text: str, style: str = "") -> None:
        """Write a line to stdout, at once."""
        print(text, flush=True)


class StyledLines(PlainLines):
    """Lines for a terminal, above the bars that are drawn there, in colours unless NO_COLOR is set."""

    def __init__(self, **options: Any) -> None:
        from rich.console import Console

        self.console = Console(highlight=False, **options)

    def write(self, text: str, style: str = "") -> None:
        """Write a line to stdout. style: words of rich, such as `bold`."""
        with tqdm.external_write_mode(file=sys.stdout):
            self.console.print(text, style=style, markup=False, emoji=False, soft_wrap=True)


def lines_for(stream: TextIO) -> PlainLines:
    """Styled lines where the stream is a terminal, else plain ones."""
    return StyledLines(file=stream) if is_terminal(stream) else PlainLines()
