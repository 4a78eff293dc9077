"""Byte pair encoding of subword-nmt: the merges of a codes file, applied as its `apply-bpe` does."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

CONTINUED = "@@"  # marks a piece that is not the last of its word
END = "</w>"
CACHED = 1_000_000  # words; a corpus of 40 million pairs has ten times as many


class BpeCodes:
    """The merges of a file written by `subword-nmt learn-bpe`, of version 0.1 or 0.2.

    Raises:
        ValueError: naming the file and the line that is not a merge, or the version.
        OSError: the file cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            lines = Path(path).read_bytes().decode().rstrip("\n").split("\n")  # other separators are part of a piece
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: is not UTF-8 text, so it holds no BPE codes") from error
        header = re.fullmatch(r"#version: *([\d.]*?)(\.0+)*\s*", lines[0])
        version = header[1] if header else "0.1"
        if version not in ("0.1", "0.2"):
            raise ValueError(f"{path}: BPE codes of version {version} are unknown, only 0.1 and 0.2 are supported")
        self.separate_end = version == "0.1"
        self.ranks: dict[tuple[str, str], int] = {}
        for number, line in enumerate(lines[bool(header) :], 1 + bool(header)):
            match line.strip("\r\n ").split(" "):
                case [left, right]:
                    self.ranks.setdefault((left, right), number)
                case _:
                    raise ValueError(f"{path}, line {number}: {line!r} is not a merge, which is two pieces and a space")
        self.cache: dict[str, list[str]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without the cache: a worker process, or a key of a cache of files, depends on the merges alone."""
        return self.__dict__ | {"cache": {}}

    def segment(self, sentence: str) -> list[str]:
        """The pieces of a sentence whose words are separated by spaces, with `@@` where a word goes on."""
        return [piece for word in sentence.strip("\r\n ").split(" ") if word for piece in self._cached(word)]

    def _cached(self, word: str) -> list[str]:
        if word not in self.cache:
            if len(self.cache) >= CACHED:
                self.cache.clear()
            self.cache[word] = self._segment_word(word)
        return self.cache[word]

    def _segment_word(self, word: str) -> list[str]:
        if len(word) == 1:
            return [word]
        pieces = [*word, END] if self.separate_end else [*word[:-1], word[-1] + END]
        while pairs := [pair for pair in pairwise(pieces) if pair in self.ranks]:
            pieces = _merge(pieces, min(pairs, key=self.ranks.__getitem__))
        if pieces[-1] == END:
            pieces.pop()
        else:
            pieces[-1] = pieces[-1].removesuffix(END)
        return [piece + CONTINUED for piece in pieces[:-1]] + pieces[-1:]


def _merge(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """Every occurrence of the pair joined, from left to right."""
    merged: list[str] = []
    index = 0
    while index < len(pieces):
        found = (pieces[index], *pieces[index + 1 : index + 2]) == pair
        merged.append("".join(pair) if found else pieces[index])
        index += 2 if found else 1
    return merged


__all__ = ["CONTINUED", "BpeCodes"]
