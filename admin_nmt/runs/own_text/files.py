"""The files that a command names as its text: whether they are there, and which languages their names speak of.

Imports nothing heavy, so that a wrong name is refused at once.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from errno import ENOENT
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...metrics.languages import find_code, known_languages

ENDINGS = {"gz", "txt", "tsv", "json", "jsonl", "parquet"}
OF_PAIRS = (".tsv", ".tsv.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz", ".parquet")  # files that hold both sides
PATTERN = re.compile(r"[*?\[]")
ROLES = {"src", "trg", "tgt"}  # what source and target are called; Sardinian is never called src
REGION = re.compile(r"(?<![A-Za-z])([a-z]{2,3})[-_]([A-Z]{2}|[A-Z][a-z]{3})(?![A-Za-z])")  # pt-BR, zh_Hant
PAIR_AND_REGION = re.compile(r"(?<![A-Za-z])([a-z]{2,3}-[a-z]{2,3})_([a-z]{2})(?![A-Za-z])")  # en-pt_br
SMALL_REGION = re.compile(r"(?<![A-Za-z])([a-z]{2,3})_([a-z]{2})(?![A-Za-z])")  # pt_br, but also en_de


@dataclass(frozen=True)
class OwnFiles:
    """One corpus: files of source and target, line by line, or files of pairs.

    Args:
        source: files, or patterns of them.
        target: as many; none where those of the source hold pairs.
    """

    source: Sequence[str]
    target: Sequence[str] = ()

    def check(self) -> None:
        """Check that the files are there and two sides were given.

        Raises:
            FileNotFoundError: naming the file that is not there.
            ValueError: one file is given as both sides, or text without its translation.
        """
        for name in (*self.source, *self.target):
            if not _is_pattern(name) and not Path(name).exists():
                raise FileNotFoundError(ENOENT, os.strerror(ENOENT), name)
            if Path(name).exists() and not Path(name).is_file() and not Path(name).is_dir():
                raise ValueError(f"{name}: is a pipe, which a run could not read again; write it to a file first")
            if not self.target and Path(name).is_file() and not name.endswith(OF_PAIRS):
                raise ValueError(f"{name} holds one language; name the file of its translations with --target")
        for one, other in zip(self.source, self.target, strict=False):
            if not _is_pattern(one) and not _is_pattern(other) and os.path.samefile(one, other):
                raise ValueError(f"{one} is given as the source and as the target; name a file of each language")

    def fields(self) -> dict[str, Any]:
        """Fields of a recipe that name it: one name, or a list."""
        sides = {"source": list(self.source), "target": list(self.target)}
        return {side: names[0] if len(names) == 1 else names for side, names in sides.items() if names}

    def __str__(self) -> str:
        """The first files, and how many more there are."""
        first = " and ".join([self.source[0], *self.target[:1]])
        more = len(self.source) + len(self.target) - 1 - bool(self.target)
        return f"{first} and {more} more" if more else first


@dataclass(frozen=True)
class OwnText:
    """Somebody's corpora: that of training, and of `valid` and `test` those that there are."""

    train: OwnFiles
    held_out: Mapping[str, OwnFiles]

    def check(self) -> None:
        """As `OwnFiles.check`, of all."""
        for files in (self.train, *self.held_out.values()):
            files.check()

    def options(self) -> list[str]:
        """As `admin-nmt train` takes them."""
        words = []
        for split, files in {"": self.train, **{f"{split}-": files for split, files in self.held_out.items()}}.items():
            for side, names in (("source", files.source), ("target", files.target)):
                words += [word for name in names for word in (f"--{split}{side}", name)]
        return words


def guess_languages(files: OwnFiles) -> list[str] | None:
    """The codes [source, target] that the names of the first files speak of; None where they do not.

    Of two files, where their paths differ: `train.en` and `train.de.gz`, `en/a.txt` and `de/a.txt`. Of one file of
    pairs, two codes next to each other: `train.en-de.tsv`. A region is none: `train.pt-BR` is pt, `en-zh_TW.tsv` en-zh.
    """
    one = _words(files.source[0], of_one=bool(files.target))
    if not files.target:
        pairs = [(find_code(a), find_code(b)) for a, b in pairwise(one) if len(a) == len(b) == 2]
        return next(([a, b] for a, b in reversed(pairs) if a and b and a != b), None)
    other = _words(files.target[0], of_one=True)
    if ROLES & {word.lower() for word in (*one[-1:], *other[-1:])}:
        return None
    if len(one) == len(other):
        pairs = [(find_code(a), find_code(b)) for a, b in zip(one, other, strict=True) if a != b]
    else:
        pairs = [(_last_code(one), _last_code(other))]
    return next(([a, b] for a, b in pairs if a and b and a != b), None)


def run_name(files: OwnFiles, languages: Sequence[str]) -> str:
    """Name of a run on the files, such as train-en-de."""
    words = [
        word for word in _words(Path(files.source[0]).name) if find_code(word) not in languages and "*" not in word
    ]
    return "-".join([*(words or ["own"]), *languages])


def _is_pattern(name: str) -> bool:
    """A file that is there is meant by its name, whatever is in it."""
    return PATTERN.search(name) is not None and not Path(name).exists()


def _without_regions(path: str, of_one: bool) -> str:
    """The path with `pt` for `pt-BR`; of the file of one language, also for `pt_br`, which else would be two."""

    def plain_locale(match: re.Match[str]) -> str:
        language = known_languages().get(match[1])
        return match[1] if language is not None and match[2].upper() in language.territories else match[0]

    path = PAIR_AND_REGION.sub(r"\1", REGION.sub(r"\1", path))
    return SMALL_REGION.sub(plain_locale, path) if of_one else path


def _words(path: str, of_one: bool = False) -> list[str]:
    """Words of a path, without its endings and the regions of languages."""
    path = _without_regions(path, of_one)
    words = [word for word in re.split(r"[/\\._-]+", path) if word]
    while len(words) > 1 and words[-1].lower() in ENDINGS:
        words.pop()
    return words


def _last_code(words: Sequence[str]) -> str | None:
    return next((code for word in reversed(words) if len(word) == 2 and (code := find_code(word))), None)
