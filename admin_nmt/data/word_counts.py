"""How often words, and parts of words, stand in the columns of a dataset: what vocabularies are learnt of.

Counted a shard at a time and cached; only the counts are held in memory.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import datasets
import pyarrow as pa
from datasets import Dataset, Features, Value
from datasets.fingerprint import Hasher

from ..tokenization.byte_bpe import count_parts
from .arrow_cache import Columns, map_whole_shards

COUNTED = Features({"word": Value("string"), "count": Value("int64")})

Count = Callable[[Iterable[pa.Array]], Counter[str]]


def count_words(
    dataset: Dataset, sides: Sequence[str], *, cache_dir: str | Path | None = None, num_proc: int | None = None
) -> Counter[str]:
    """How often each word stands in columns of a dataset; words are what stands between spaces."""
    return _count(dataset, sides, "words", _words, cache_dir, num_proc)


def count_word_parts(
    dataset: Dataset, sides: Sequence[str], *, cache_dir: str | Path | None = None, num_proc: int | None = None
) -> Counter[str]:
    """`count_parts` of columns of a dataset."""
    return _count(dataset, sides, "parts", count_parts, cache_dir, num_proc)


def count_in(batches: Iterable[pa.RecordBatch], sides: Sequence[str], count: Count) -> Iterator[Columns]:
    """What `count` counts in these columns of the batches, as columns of `COUNTED`."""
    counts = count(batch.column(side) for batch in batches for side in sides)
    yield {"word": list(counts), "count": list(counts.values())}


def _count(
    dataset: Dataset, sides: Sequence[str], name: str, count: Count, cache_dir: str | Path | None, num_proc: int | None
) -> Counter[str]:
    key = Hasher.hash([name, dataset._fingerprint, list(sides)])
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / f"counted-{key}"
    function = partial(count_in, sides=tuple(sides), count=count)
    step = {"fingerprint": key, "num_proc": num_proc, "desc": f"counting {name}"}
    counted = map_whole_shards(dataset, function, COUNTED, folder, **step)
    total: Counter[str] = Counter()
    for batch in counted.data.to_batches():
        for word, times in zip(*(batch.column(column).to_pylist() for column in COUNTED), strict=True):
            total[word] += times
    return total


def _words(columns: Iterable[pa.Array]) -> Counter[str]:
    lines = (line for texts in columns for line in texts.to_pylist())
    return Counter(word for line in lines for word in line.strip("\r\n ").split(" ") if word)
