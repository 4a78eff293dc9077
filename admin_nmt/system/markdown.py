"""Tables in GitHub's Markdown."""

from collections.abc import Iterable, Iterator, Sequence


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
