"""Cleaning of parallel training text: six filters in a fixed order, each with its count.

Only training data is cleaned; evaluation data is never touched. A pair is counted under the first filter that drops it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, Value
from datasets.fingerprint import Hasher
from datasets.table import MemoryMappedTable

from .arrow_cache import map_shards, write_arrow, write_unless_whole
from .tokenization.bpe_codes import BpeCodes

FILTERS = ("empty side", "over-long", "length ratio", "copy", "duplicate", "held out")
_EMPTY, _OVER_LONG, _RATIO, _COPY, _DUPLICATE, _HELD_OUT = range(len(FILTERS))
_KEPT = len(FILTERS)
_JUDGED = Features({"verdict": Value("uint8"), "key": Value("int64")})
_INDICES = Features({"indices": Value("uint64")})
HeldOut = Literal["source", "pair", "either"]


@dataclass(frozen=True)
class CleaningOptions:
    """The section `data.cleaning`: what [`clean`] drops; an empty side always goes.

    The defaults are those of the WMT'14 preparation of fairseq (1-250, ratio 1.5; Moses' clean-corpus-n), counted in
    whitespace words before tokenisation. For a language written without spaces set `max_ratio` to None.

    Where the vocabulary is that of subword-nmt (`tokenizer.kind`), all filters see Moses' tokens instead of raw text.
    Moses' clean-corpus-n itself is `ratio_slack: 0, longest_word: 1000, drop_copies: false, drop_duplicates: false,
    drop_held_out: null`, and `max_ratio: 9` where a script gives it no `-ratio`.

    Attributes:
        normalize: first rewrite the text as Moses' normalize-punctuation and remove-non-printing-char do; fairseq's
            preparation does so to training text alone. Byte-level BPE does not need it. (`clean_corpora` heeds this
            field, `clean` alone does not.)
        max_words: longest side allowed, in whitespace words; None for no limit.
        max_ratio: drop when longer > max_ratio * shorter + ratio_slack, in whitespace words; None to keep all.
        ratio_slack: words; 0 is Moses' bare ratio, of which 1.5 drops every pair of 1 and 2 words, and 888 of
            Multi30k's 29,000 good En-De pairs; with 5 it drops 7, most of them damaged.
        drop_copies: drop pairs whose two sides are identical.
        drop_duplicates: keep only the first of identical pairs.
        drop_held_out: drop training pairs whose source ("source"), whose source and target ("pair") or whose source or
            target ("either") stand in the validation or test data; None to keep them.
        count: what `max_words` and `max_ratio` count: `words`, between spaces, or `subwords`, pieces of subword-nmt,
            which is then learnt of the text before the cleaning, as in fairseq's prepare-wmt14en2fr.sh.
        longest_word: drop as over-long when a word, or piece, has more characters than this; None for no limit.
    """

    normalize: bool = False
    max_words: int | None = field(default=250, metadata={"ge": 1})
    max_ratio: float | None = field(default=1.5, metadata={"ge": 1})
    ratio_slack: int = field(default=5, metadata={"ge": 0})
    drop_copies: bool = True
    drop_duplicates: bool = True
    drop_held_out: HeldOut | None = "source"
    count: Literal["words", "subwords"] = "words"
    longest_word: int | None = field(default=None, metadata={"ge": 1})


def clean(
    dataset: Dataset,
    options: CleaningOptions,
    held_out: Dataset | None = None,
    *,
    codes: Sequence[BpeCodes] | None = None,
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
) -> tuple[Dataset, dict[str, int]]:
    """Drop the pairs that `options` names and count them.

    Identity of texts is judged by 64-bit hashes of the stripped text (one false match in some 10^4 corpora of 40
    million pairs), so that no text is held in memory: 9 bytes a pair, and some 60 while duplicates are looked for.
    The text is not copied: the kept pairs are indices of the dataset, in a memory-mapped file.

    Args:
        dataset: at least one pair, in columns `source` and `target`.
        options: what to drop.
        held_out: validation and test pairs, with the same columns.
        codes: of source and target, to count `subwords`.
        cache_dir: where the verdicts go; None for the cache of `datasets`.
        num_proc: number of worker processes; None for one a core.

    Returns:
        The kept pairs in their order, and the counts: `total`, one for each of `FILTERS` in order, `kept`.
    """
    held_out_keys = _held_out_keys(held_out, options.drop_held_out)
    key = Hasher.hash(
        [dataset._fingerprint, asdict(options), sorted(held_out_keys), *([] if codes is None else [codes])]
    )
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / f"cleaning-{key}"
    judge = partial(judge_pairs, options=options, held_out=held_out_keys, codes=codes)
    judged = map_shards(dataset, judge, _JUDGED, folder, fingerprint=key, num_proc=num_proc, desc="cleaning")
    kept = folder / "kept.arrow"
    write_unless_whole(kept, folder / "lock", lambda: _write_kept(kept, dataset, _verdicts(judged, options)))
    indices = MemoryMappedTable.from_file(str(kept))
    return Dataset(dataset.data, indices_table=indices, fingerprint=key), json.loads(indices.schema.metadata[b"counts"])


def _write_kept(path: Path, dataset: Dataset, verdicts: np.ndarray[Any, Any]) -> None:
    """The indices of the kept pairs, and the counts."""
    indices = np.flatnonzero(verdicts == _KEPT).astype(np.uint64)
    if dataset._indices is not None:  # rows of the table, of which the dataset is a selection
        indices = dataset._indices.column(0).to_numpy()[indices]
    tally = np.bincount(verdicts, minlength=_KEPT + 1).tolist()
    counts = dict(zip(("total", *FILTERS, "kept"), [len(dataset), *tally], strict=True))
    write_arrow(path, [{"indices": indices}], _INDICES, {"counts": json.dumps(counts)})


def _verdicts(judged: Dataset, options: CleaningOptions) -> np.ndarray[Any, Any]:
    """The verdict on each pair, duplicates included."""
    verdicts = judged.data.column("verdict").to_numpy().copy()
    if options.drop_duplicates:
        keys = judged.data.column("key").to_numpy()
        verdicts[repeats(keys, np.isin(verdicts, (_KEPT, _HELD_OUT)))] = _DUPLICATE
    return verdicts


def format_counts(counts: Mapping[str, int]) -> str:
    """The counts of `clean` as lines of text: a name, the number of pairs, its share of the total."""
    total = max(counts["total"], 1)
    width = max(map(len, counts))
    return "\n".join(f"{name:<{width}} {count:>12,} {count / total:>8.2%}" for name, count in counts.items())


def dropped(counts: Mapping[str, int]) -> str:
    """The filters that dropped pairs, each with their number, such as `copy 3, duplicate 1,200`."""
    return ", ".join(f"{name} {counts[name]:,}" for name in FILTERS if counts[name])


def judge_pairs(
    batch: pa.RecordBatch,
    options: CleaningOptions,
    held_out: set[int],
    codes: Sequence[BpeCodes] | None,
) -> pa.RecordBatch:
    """The verdict on each of some pairs, an index of `FILTERS` or their number, and the key by which it is identified.

    They depend on nothing but the pairs and the arguments: duplicates are found when all keys are known.

    Args:
        batch: columns `source` and `target`, text.
        held_out: keys of what is held out.
        codes: of source and target, to count subwords; None to count words.
    """
    sides = (batch.column(side).to_pylist() for side in ("source", "target"))
    pairs = [(source.strip(), target.strip()) for source, target in zip(*sides, strict=True)]
    split = [str.split, str.split] if codes is None else [side.segment for side in codes]
    verdicts = [
        _verdict(source, target, (split[0](source), split[1](target)), options, held_out) for source, target in pairs
    ]
    keys = [_pair_key(source, target) for source, target in pairs]
    return pa.RecordBatch.from_pydict({"verdict": verdicts, "key": keys}, schema=_JUDGED.arrow_schema)


def _verdict(
    source: str, target: str, words: tuple[list[str], list[str]], options: CleaningOptions, held_out: set[int]
) -> int:
    shorter, longer = sorted(map(len, words))
    if not shorter:
        return _EMPTY
    if options.max_words is not None and longer > options.max_words:
        return _OVER_LONG
    if options.longest_word is not None and max(map(len, chain(*words))) > options.longest_word:
        return _OVER_LONG
    if options.max_ratio is not None and longer > options.max_ratio * shorter + options.ratio_slack:
        return _RATIO
    if options.drop_copies and source == target:
        return _COPY
    if held_out and not held_out.isdisjoint(_held_out_keys_of(source, target, options.drop_held_out)):
        return _HELD_OUT
    return _KEPT


def repeats(keys: np.ndarray[Any, Any], candidates: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Positions among the `candidates` (a mask) whose key an earlier candidate has."""
    positions = np.flatnonzero(candidates)
    _, first = np.unique(keys[positions], return_index=True)
    return np.delete(positions, first)


def _held_out_keys(held_out: Dataset | None, side: HeldOut | None) -> set[int]:
    if held_out is None or side is None:
        return set()
    pairs = zip(held_out["source"], held_out["target"], strict=True)
    return {key for source, target in pairs for key in _held_out_keys_of(source.strip(), target.strip(), side)}


def _held_out_keys_of(source: str, target: str, side: HeldOut | None) -> tuple[int, ...]:
    if side == "pair":
        return (_pair_key(source, target),)
    return (text_key(source),) if side == "source" else (text_key(source), _pair_key("", target))


def _pair_key(source: str, target: str) -> int:
    return text_key(f"{source}\0{target}")


def text_key(text: str) -> int:
    """A signed 64-bit key of a text, by which texts are told apart."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)
