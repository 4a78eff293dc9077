"""One reference of each sentence, or several, as for the Chinese-English test sets of NIST, which have four."""

from collections.abc import Sequence

References = Sequence[str] | Sequence[Sequence[str]]
"""Of each sentence its reference, or the list of its references, as many for every sentence."""


def reference_columns(references: References) -> list[list[str]]:
    """The first reference of every sentence, then the second of every sentence, and so on: sacreBLEU's order.

    Raises:
        ValueError: a sentence has no reference, or another number of them than the first one.
    """
    rows = [[one] if isinstance(one, str) else list(one) for one in references]
    for number, row in enumerate(rows, 1):
        if not row or len(row) != len(rows[0]):
            raise ValueError(f"sentence {number} has {len(row)} references and the first {len(rows[0])}; give as many")
    return [list(column) for column in zip(*rows, strict=True)]


def reference_rows(columns: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """The references of each sentence, from one list of lines a reference file."""
    return list(zip(*columns, strict=True))


def check_paired(hypotheses: Sequence[str], references: References) -> None:
    """Raises ValueError where they are no lists, not as many, or none."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise ValueError("hypotheses and references are lists of sentences; put a single one into a list")
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses against {len(references)} references: give one reference each")
    if not hypotheses:
        raise ValueError("no hypotheses to score: the list is empty")
