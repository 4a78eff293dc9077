"""Bars and lines that do not get into each other's way; without a terminal there are plain lines alone.

A bar is gone when its work is done. It is drawn to stderr, and only where that is a terminal that can move its cursor.
"""

import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from tqdm import tqdm


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody looks at a stream now, on something that can draw over what it has drawn."""
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
    hidden = not (shown and is_terminal(sys.stderr))
    return tqdm(iterable, desc=desc, unit=f" {unit}", leave=False, dynamic_ncols=True, disable=hidden, **options)


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
