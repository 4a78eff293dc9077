"""Tables in GitHub's Markdown, and text that is no markup."""

import re
from collections.abc import Iterable, Iterator, Sequence

BREAKS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
MARKUP = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")  # "_" inside a word is no markup


def escaped(text: str) -> str:
    """Text as GitHub's Markdown shows it literally: one line that breaks no table and is no markup, HTML or formula."""
    one_line = BREAKS.sub(" ", text).replace("&", "&amp;").replace("<", "&lt;")
    return MARKUP.sub(r"\\\g<0>", one_line)


def table_lines(header: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    """The lines of a table, one after the other, as its rows come."""
    yield _line(header)
    yield "|---" * len(header) + "|"
    yield from map(_line, rows)


def table_text(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as one text without the last line's end."""
    return "\n".join(table_lines(header, rows))


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
