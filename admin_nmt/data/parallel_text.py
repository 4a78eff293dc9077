"""Sentence pairs from files or the `datasets` library, as a memory-mapped dataset with columns `source` and `target`.

Files are streamed into Arrow, never held in memory; those that are named are cached under a key of their
content.
"""

import glob
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import sacrebleu
from datasets import Dataset, Features, Value, concatenate_datasets, load_dataset
from datasets.exceptions import DatasetGenerationError
from datasets.fingerprint import Hasher
from datasets.table import InMemoryTable
from pyarrow.parquet import ParquetFile

from ..system.files import whole_file
from .arrow_cache import BATCH, batched_columns, for_each, open_arrow, write_arrow, write_unless_whole
from .checksums import add_checksum, discard, is_whole
from .text_lines import read_lines

PAIR = Features({"source": Value("string"), "target": Value("string")})
TEST_SET = "sacrebleu:"

Files = str | Path | Sequence[str | Path]


def load_parallel(
    source: Files,
    target: Files | None = None,
    *,
    columns: Sequence[str] = ("source", "target"),
    name: str | None = None,
    split: str = "train",
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
) -> Dataset:
    """Load sentence pairs as a memory-mapped dataset with the text columns `source` and `target`.

    Text, TSV and JSON files are UTF-8, one pair a line, and may be gzipped (`.gz`). Lines end at a line feed and
    nowhere else; a carriage return before it and a byte order mark at the start of the file are dropped.

    Args:
        source: with `target`, the source side's plain text; alone, a `.tsv` file (source, tab, target), a `.jsonl` or
            `.json` file (one object a line), a `.parquet` file, `sacrebleu:` and one of its test sets, or a name that
            `datasets.load_dataset` knows. Of a corpus in several files a list, or a pattern with `*`.
        target: the target side's plain text, line by line the translation of `source`; as many files as of that.
        columns: for JSON, Parquet and named datasets: the source and target column, or the two languages of a
            `translation` column. For a test set of sacreBLEU the languages.
        name: the configuration of a named dataset, such as "de-en".
        split: the split of a named dataset.
        cache_dir: where the Arrow files go; None for the cache of `datasets`.
        num_proc: worker processes, for several files and for named datasets; None for one a core.

    Raises:
        ValueError: naming file and line, for unequal line counts, unequal numbers of files, invalid UTF-8, an empty or
            damaged file, a line that does not hold a pair of texts, a missing column.
    """
    if len(set(columns)) != 2:
        raise ValueError(f"columns is {columns!r}: name two, the source and the target")
    load = partial(_load_one, columns=tuple(columns), name=name, split=split, cache_dir=cache_dir)
    sources = _files(source)
    targets = [None] * len(sources) if target is None else _files(target)
    if len(sources) != len(targets):
        raise ValueError(
            f"the source has {len(sources)} files ({sources[0]} ... {sources[-1]}) and the target {len(targets)} "
            f"({targets[0]} ... {targets[-1]}); give pairs of files"
        )
    if len(sources) == 1:
        return load(sources[0], targets[0], num_proc=num_proc)
    files = list(zip(sources, targets, strict=True))
    for pipe in filter(is_pipe, chain(*([one, other or one] for one, other in files))):
        raise ValueError(f"{pipe}: is a pipe, which cannot be one of several files; write it to a file first")
    for_each(partial(_load_and_count, load, files), range(len(files)), num_proc=num_proc, desc="reading")
    return concatenate_datasets([load(*pair) for pair in files])


def _files(given: Files) -> list[str | Path]:
    """The files of a list or a pattern, or the one that is given."""
    if isinstance(given, str | Path):
        if not any(mark in str(given) for mark in "*?[") or Path(given).exists():
            return [given]
        given = sorted(glob.glob(str(given), recursive=True)) or [given]  # without any, its open() names the pattern
    if not given:
        raise ValueError("a corpus is an empty list of files; name at least one")
    return list(given)


def local_files(source: Files, target: Files | None) -> list[str | Path]:
    """Files among the arguments of `load_parallel`, also such as do not exist."""
    sources = _files(source)
    if target is not None:
        return [*sources, *_files(target)]
    endings = (".tsv", ".json", ".jsonl", ".parquet")
    return [file for file in sources if str(file).removesuffix(".gz").endswith(endings)]


def _load_and_count(load: Callable[..., Dataset], files: Sequence[tuple[Any, Any]], index: int) -> int:
    return len(load(*files[index]))


def _load_one(
    source: str | Path,
    target: str | Path | None,
    *,
    columns: tuple[str, ...],
    name: str | None,
    split: str,
    cache_dir: str | Path | None,
    num_proc: int | None = None,
) -> Dataset:
    if target is not None:
        return _from_files(_read_text, source, target, cache_dir=cache_dir)
    if str(source).startswith(TEST_SET):
        return _from_files(_read_text, *_test_set(str(source).removeprefix(TEST_SET), columns), cache_dir=cache_dir)
    kind = Path(str(source).removesuffix(".gz")).suffix
    if kind == ".tsv":
        return _from_files(_read_tsv, source, cache_dir=cache_dir)
    if kind in (".jsonl", ".json"):
        return _from_files(_read_json, source, cache_dir=cache_dir, columns=columns)
    if kind == ".parquet":
        return _from_files(_read_parquet, source, cache_dir=cache_dir, columns=columns)
    if Path(source).exists() and not Path(source).is_dir():
        raise ValueError(f"{source}: give the other side as target, or one .tsv, .jsonl or .parquet file with both")
    options: dict[str, Any] = {"split": split, "cache_dir": cache_dir, "num_proc": num_proc}
    return _from_library(str(source), name, columns=columns, **options)


def _test_set(name: str, languages: Sequence[str]) -> tuple[str, str]:
    """The two files of a test set that sacreBLEU knows; it downloads them once."""
    try:
        pair = "-".join(languages)
        return sacrebleu.get_source_file(name, pair), sacrebleu.get_reference_files(name, pair)[0]
    except (Exception, SystemExit) as error:  # sacreBLEU raises bare ones, and exits where a download is damaged
        raise OSError(f"{TEST_SET}{name}: sacreBLEU cannot give {'-'.join(languages)} ({error})") from error


def read_more_references(files: Iterable[str | Path], sentences: int) -> list[list[str]]:
    """The lines of further reference files of a test set of so many sentences.

    Raises:
        ValueError: naming a file that has more or fewer lines, or that is no UTF-8 text.
    """
    columns = []
    for file in files:
        columns.append(list(read_lines(file)))
        if len(columns[-1]) != sentences:
            raise ValueError(
                f"{file}: has {len(columns[-1])} references for {sentences} sentences of the test set; give one a line"
            )
    return columns


def _from_files(
    reader: Callable[..., Iterator[tuple[str, str]]], *paths: str | Path, cache_dir: str | Path | None, **options: Any
) -> Dataset:
    """Dataset of the pairs that `reader(*paths, **options)` yields, cached by the content of the files."""
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE)
    folder.mkdir(parents=True, exist_ok=True)

    def write(file: Path) -> None:
        write_arrow(file, batched_columns(reader(*paths, **options), list(PAIR)), PAIR)

    if any(map(is_pipe, paths)):
        return _from_pipes(write, paths, folder)
    key = Hasher.hash([reader.__name__, options, *(_digest(path, folder) for path in paths)])
    file = folder / f"pairs-{key}.arrow"
    write_unless_whole(file, file.with_suffix(".lock"), partial(write, file))
    return open_arrow([file], key)


def is_pipe(path: str | Path) -> bool:
    """Tell whether this can be read only once."""
    return Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir()


def _from_pipes(write: Callable[[Path], None], paths: Sequence[str | Path], folder: Path) -> Dataset:
    """Dataset of what pipes give, read once and cached by what was read."""
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise ValueError(f"{paths[0]}: is a pipe, which cannot give both sides; write one of them to a file")
    with tempfile.TemporaryDirectory(prefix=".pipe-", dir=folder) as name:
        read = Path(name) / "pairs.arrow"
        write(read)
        with read.open("rb") as opened:
            key = Hasher.hash(hashlib.file_digest(opened, "sha256").hexdigest())
        file = folder / f"pairs-{key}.arrow"
        write_unless_whole(file, file.with_suffix(".lock"), lambda: read.replace(file))
    return open_arrow([file], key)


def _digest(path: str | Path, folder: Path) -> str:
    """SHA-256 of a file, kept in a folder for as long as nothing has touched the file."""
    state = Path(path).stat()  # whoever sets the date back still changes st_ctime
    key = Hasher.hash([str(Path(path).resolve()), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino])
    known = folder / f"digest-{key}"
    if not is_whole(known):
        discard(known)
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with whole_file(known) as temporary:
            temporary.write_text(digest)
            add_checksum(temporary)
    return known.read_bytes()[:64].decode()


def _from_library(name: str, configuration: str | None, *, columns: Sequence[str], **options: Any) -> Dataset:
    """The two `columns` of what `load_dataset` loads."""
    try:
        dataset = load_dataset(name, configuration, **options)
    except (DatasetGenerationError, ValueError, OSError) as error:
        raise ValueError(f"{name}: {error.__cause__ or error}") from error
    return _pick_columns(dataset, name, columns)


def _read_text(source: str | Path, target: str | Path) -> Iterator[tuple[str, str]]:
    sides = read_lines(source), read_lines(target)
    for number, (left, right) in enumerate(zip_longest(*sides), 1):
        if left is None or right is None:
            longer = number + sum(1 for side in sides for _ in side)
            counts = (number - 1, longer) if left is None else (longer, number - 1)
            raise ValueError(
                f"{source} has {counts[0]} lines and {target} has {counts[1]}: line {number} has no counterpart; "
                "give files that correspond line by line"
            )
        yield left, right


def _read_tsv(path: str | Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        cells = line.split("\t")
        if len(cells) != 2:
            raise ValueError(f"{path}: line {number} has {len(cells)} tab-separated fields; give source and target")
        yield cells[0], cells[1]


def _read_json(path: str | Path, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: line {number} is not one JSON object ({error})") from error
        left, right = map(texts_of(record).get, columns)
        if not (isinstance(left, str) and isinstance(right, str)):
            raise ValueError(f"{path}: line {number} has no texts {columns[0]!r} and {columns[1]!r}; set columns")
        try:
            (left + right).encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{path}: line {number} holds half a surrogate pair, which is no character") from error
        yield left, right


def texts_of(record: Any) -> dict[str, Any]:
    """The fields of a JSON record, or those of its object `translation`; none where it is no object."""
    if not isinstance(record, dict):
        return {}
    inner = record.get("translation")
    return inner if isinstance(inner, dict) else record


def _read_parquet(path: str | Path, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    rows = 0
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH):
                pairs = _pick_columns(Dataset(InMemoryTable(pa.Table.from_batches([batch]))), path, columns)
                rows += len(pairs)
                yield from zip(pairs["source"][:], pairs["target"][:], strict=True)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}; fetch the file again") from error
    if not rows:
        raise ValueError(f"{path}: the file has no data")


def _pick_columns(dataset: Dataset, where: str | Path, columns: Sequence[str]) -> Dataset:
    """The two `columns` of a loaded dataset, flat or inside `translation`, under the names of `PAIR`."""
    dataset = dataset.flatten()
    names = [c if c in dataset.column_names else f"translation.{c}" for c in columns]
    for column, name in zip(columns, names, strict=True):
        if name not in dataset.column_names:
            raise ValueError(f"{where}: no column {column!r} among {', '.join(dataset.column_names)}; set columns")
        held = getattr(dataset.features[name], "dtype", dataset.features[name])  # a list of texts has no dtype
        if held not in ("string", "large_string"):
            raise ValueError(f"{where}: column {column!r} holds {held} instead of text")
        if dataset.data.column(name).null_count:
            raise ValueError(f"{where}: column {column!r} has rows without text; fill or remove them")
    pairs = dataset.select_columns(names).rename_columns(dict(zip(names, PAIR, strict=True)))
    return pairs if pairs.features == PAIR else pairs.cast(PAIR)
