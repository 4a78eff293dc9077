"""Contents of the files of somebody's own text, whether one can train on it, and which pairs of it are held out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from datasets import Dataset, concatenate_datasets
from pyarrow.parquet import read_schema

from ...data.arrow_cache import BATCH
from ...data.cleaning import CleaningOptions, clean, dropped, text_key
from ...data.parallel_text import load_parallel, texts_of
from ...data.text_lines import read_lines
from ...metrics.languages import find_code, has_spaces
from ...system.files import write_text_whole
from .files import OwnFiles

LONGEST_TRANSLATED = 512  # tokens of the longest sentence that the planned model can translate
FEWEST = 200  # pairs to learn from; with 200 a model learns its text by heart and no more
FEWEST_HELD_OUT = 10  # pairs of a split; with fewer its scores say nothing
SIDES = ("source", "target")


@dataclass(frozen=True)
class CorpusSummary:
    """Somebody's training pairs, cleaned.

    Args:
        read: pairs in the files.
        kept: pairs that cleaning leaves.
        bytes_a_pair: UTF-8 bytes of the longer side of a pair, on average.
        held_out: of `valid` and `test` what a recipe says of them: files that were given, or written here.
        split_off: how many pairs went from the training text into each of them.
        example: a held-out source sentence of some words, where there is one.
    """

    read: int
    kept: int
    bytes_a_pair: float
    held_out: dict[str, dict[str, Any]]
    split_off: dict[str, int] = field(default_factory=dict)
    example: str | None = None

    @property
    def training(self) -> int:
        """Pairs that are left for training, where each held-out sentence stands in one pair."""
        return self.kept - sum(self.split_off.values())


def columns_and_languages(
    files: OwnFiles, columns: list[str] | None, languages: list[str] | None
) -> tuple[list[str] | None, list[str] | None]:
    """Columns of JSON lines or Parquet hold the pairs, None for `source` and `target`, and the languages.

    Args:
        columns: those that were named, if any.
        languages: those that are known, if any; else the names of two columns may tell them.
    """
    found = _columns(files.source[0])
    if columns is not None or not found or set(SIDES) <= set(found):
        return columns, languages
    if languages is not None and set(languages) <= set(found):
        return languages, languages
    if languages is None and len(found) == 2 and all(find_code(name) == name for name in found):
        return found, found
    return None, languages


def _columns(file: str) -> list[str]:
    """The names of the texts in the first record of a file, none where it has no names."""
    kind = Path(file.removesuffix(".gz")).suffix
    if kind == ".parquet":
        return list(read_schema(file).names)
    if kind not in (".jsonl", ".json"):
        return []
    try:
        record = json.loads(next(iter(read_lines(file)), "{}"))
    except (ValueError, RecursionError):  # an error with its line comes when all of it is read
        return []
    return [name for name, text in texts_of(record).items() if isinstance(text, str)]


def cleaning_options(languages: Sequence[str]) -> dict[str, Any]:
    """Fields of `data.cleaning`: held-out sentences stay out on either side, and words count where there are spaces."""
    without = {} if all(map(has_spaces, languages)) else {"max_ratio": None}
    return {"drop_held_out": "either"} | without


def summarize(
    files: OwnFiles,
    held_out: Mapping[str, OwnFiles],
    languages: Sequence[str],
    folder: Path,
    cleaning: CleaningOptions,
    *,
    cache_dir: Path,
    columns: list[str] | None = None,
) -> CorpusSummary:
    """Read and clean the training pairs; hold pairs out for `valid` and `test` where they are not given.

    Args:
        files: of the training pairs.
        held_out: those of `valid` and `test` that there are.
        languages: codes of source and target.
        folder: where held-out pairs are written, as text, such as `valid.en` and `valid.de`.
        cleaning: of the training pairs. Held-out pairs are of the text as it is, so none of it is rewritten here; where
            the recipe normalises it, the counts are an estimate.
        cache_dir: of everything that is read.
        columns: of JSON lines and Parquet.

    Raises:
        ValueError: in one sentence, why one cannot train on the files.
    """
    options: dict[str, Any] = {} if columns is None else {"columns": columns}
    load = {split: part.fields() | options for split, part in held_out.items()}
    pairs = load_parallel(**files.fields() | options, cache_dir=cache_dir)
    others = [load_parallel(**fields, cache_dir=cache_dir) for fields in load.values()]
    given = concatenate_datasets(others) if others else None
    cleaned, counts = clean(pairs, cleaning, given, cache_dir=cache_dir)
    facts = text_facts(cleaned)
    check(files, counts)
    wanted = {split: min(1000, max(20, len(cleaned) // 20)) for split in ("valid", "test") if split not in held_out}
    chosen = choose(facts, wanted)
    example = None
    for split, indices in chosen.items():
        if len(indices) < FEWEST_HELD_OUT:
            raise ValueError(
                f"{files}: the {counts['kept']:,} pairs repeat so few sentences that only {len(indices)} are left to "
                f"hold out for {split}; give more different sentences, or held-out files with --valid-source and "
                "--test-source"
            )
        part = cleaned.select(indices)
        load[split] = write_pairs(part, languages, folder, split)
        example = next((text for text in part["source"] if 4 <= len(text.split()) <= 12), example)
    sizes = {split: len(indices) for split, indices in chosen.items()}
    longer = np.maximum(facts["source_bytes"], facts["target_bytes"]).mean()
    return CorpusSummary(counts["total"], counts["kept"], float(longer), load, sizes, example)


def text_facts(pairs: Dataset) -> dict[str, npt.NDArray[Any]]:
    """For each side of each pair a 64-bit key of the text, its bytes, and whether it is one plain line, [pairs] each.

    Returns:
        `source_key`, `source_bytes`, `source_plain`, and so for the target.
    """
    kinds: dict[str, Any] = {"key": np.int64, "bytes": np.int32, "plain": np.bool_}
    facts = {f"{side}_{name}": np.empty(len(pairs), kind) for side in SIDES for name, kind in kinds.items()}
    for start in range(0, len(pairs), BATCH):
        batch = pairs[start : start + BATCH]
        for side in SIDES:
            for row, text in enumerate(batch[side], start):
                facts[f"{side}_key"][row] = text_key(text.strip())
                facts[f"{side}_bytes"][row] = len(text.strip().encode())
                facts[f"{side}_plain"][row] = len(text.splitlines()) == 1
    return facts


def check(files: OwnFiles, counts: Mapping[str, int]) -> None:
    """Refuse text that no translation can be learnt from.

    Args:
        counts: of the cleaning.

    Raises:
        ValueError: the sides are equal, or too few pairs are left.
    """
    total, kept = counts["total"], counts["kept"]
    if counts["copy"] > total / 2:
        raise ValueError(
            f"{files}: {counts['copy']:,} of {total:,} pairs have the same text on both sides; give the text in one "
            "language, and its translation"
        )
    if kept < FEWEST:
        left = f", of which cleaning leaves {kept:,} ({dropped(counts)})" if dropped(counts) else ""
        raise ValueError(
            f"{files}: {total:,} pairs{left} are too few to learn from: give {FEWEST} or more, better some thousands"
        )


def choose(facts: Mapping[str, npt.NDArray[Any]], wanted: Mapping[str, int]) -> dict[str, list[int]]:
    """Pairs to hold out, no sentence of which is in two splits, the same for the same text in any order.

    Pairs whose sentences stand nowhere else come first, in an order as good as random: of a sentence that stands in
    many pairs, all would be lost for training. Pairs that may be too long for the model come last.

    Args:
        facts: of all pairs, as `text_facts` gives them.
        wanted: how many for each split.

    Returns:
        Rows of each split, in order; the splits may be smaller than wanted.
    """
    times = np.zeros(len(facts["source_key"]), np.int64)
    for side in SIDES:
        _, which, count = np.unique(facts[f"{side}_key"], return_inverse=True, return_counts=True)
        times += count[which]
    mixed = facts["source_key"].view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + facts["target_key"].view(np.uint64)
    usable = facts["source_plain"] & facts["target_plain"]
    long = (
        np.maximum(facts["source_bytes"], facts["target_bytes"]) >= LONGEST_TRANSLATED
    )  # a token has a byte, but for the end
    candidates = (int(row) for row in np.lexsort((mixed, times, long)) if usable[row])
    seen: set[tuple[str, int]] = set()

    def fresh(row: int) -> bool:
        keys = {(side, int(facts[f"{side}_key"][row])) for side in SIDES}
        if keys & seen:
            return False
        seen.update(keys)
        return True

    rows = filter(fresh, candidates)
    return {split: sorted(islice(rows, number)) for split, number in wanted.items()}


def write_pairs(pairs: Dataset, languages: Sequence[str], folder: Path, name: str) -> dict[str, str]:
    """Write pairs as two text files; gives what a recipe says of them."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = dict(zip(SIDES, languages, strict=True))
    names = {side: f"{name}.{language}" for side, language in sides.items()}
    if len(set(languages)) == 1:  # as in paraphrasing
        names = {side: f"{name}.{side}.{language}" for side, language in sides.items()}
    files = {side: folder / file for side, file in names.items()}
    for side, path in files.items():
        write_text_whole(path, "".join(f"{text}\n" for text in pairs[side]))
    return {side: str(path) for side, path in files.items()}
