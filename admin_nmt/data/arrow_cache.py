"""Steps over a large dataset, a shard at a time: on all cores, and taken up where an earlier call was interrupted.

A shard is an Arrow file that is written under another name and renamed when complete. Its borders do not depend on the
number of processes, so that a folder of shards is the same whoever made it. Its checksum is verified whenever it is
opened, and a damaged one is made again (see `checksums`); who reads the old one meanwhile keeps it.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from errno import ENOSPC
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from datasets import Dataset, Features
from datasets.table import MemoryMappedTable, concat_tables
from filelock import FileLock

from ..system.files import whole_file
from ..system.terminal import progress_bar
from .checksums import add_checksum, all_whole, discard, is_whole

SHARD = 100_000
BATCH = 10_000  # pairs in one Arrow record; a table of fewer, larger records opens faster

Columns: TypeAlias = Mapping[str, Any] | pa.RecordBatch  # a sequence or an array each


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def write_arrow(
    path: Path, batches: Iterable[Columns], features: Features, metadata: Mapping[str, str] | None = None
) -> int:
    """Writes batches of columns to an Arrow file, whole or not at all, and returns the number of rows.

    Args:
        metadata: what else the file says, in its schema.

    Raises:
        OSError: naming the folder if the disk is full.
    """
    rows, schema = 0, features.arrow_schema
    schema = schema.with_metadata((schema.metadata or {}) | dict(metadata or {}))
    for rest in path.parent.glob(f".{path.name}-*"):  # of a killed process: whoever writes holds a lock
        rest.unlink()
    try:
        with whole_file(path) as temporary:
            with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
                for columns in batches:
                    known = isinstance(columns, pa.RecordBatch)
                    batch = columns if known else pa.RecordBatch.from_pydict(dict(columns), schema=schema)
                    writer.write_batch(batch)
                    rows += len(batch)
            add_checksum(temporary)
    except OSError as error:
        if error.errno != ENOSPC:
            raise
        raise OSError(
            f"the disk of {path.parent} is full; make room, or choose another cache_dir, and give the same command "
            "again: what was finished is kept"
        ) from error
    return rows


def open_arrow(paths: Iterable[Path], fingerprint: str) -> Dataset:
    """The rows of Arrow files in this order, memory-mapped."""
    return Dataset(concat_tables([MemoryMappedTable.from_file(str(path)) for path in paths]), fingerprint=fingerprint)


def write_unless_whole(path: Path, lock: Path, write: Callable[[], Any]) -> None:
    """Calls `write`, which makes the file, where it is missing or damaged; other processes wait for it."""
    if not is_whole(path):
        with FileLock(lock):
            if not is_whole(path):
                discard(path)
                write()


def map_shards(
    dataset: Dataset,
    function: Callable[[pa.RecordBatch], Columns],
    features: Features,
    folder: Path,
    *,
    fingerprint: str,
    num_proc: int | None = None,
    desc: str,
) -> Dataset:
    """Applies a function to the batches of a dataset and keeps what it returns in a folder, one file a shard.

    Whole shards that are in the folder already are not made again. Another process that makes the same folder is waited
    for.

    Args:
        dataset: at least one row.
        function: maps a batch of rows to new columns, of any number of rows.
        features: types of the new columns.
        folder: belongs to this step and these inputs alone.
        fingerprint: of the new dataset.
        num_proc: worker processes; None for one a core.
        desc: what the progress bar says.

    Raises:
        OSError: the disk is full, or a worker was killed. Finished shards stay.
    """
    if not folder.is_dir():
        discard(folder)
        folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(dataset), SHARD)
    paths = [folder / f"{number:05}.arrow" for number in range(len(starts))]
    if not all(all_whole(paths)):
        with FileLock(folder / "lock"):
            wanted = [index for index, whole in enumerate(all_whole(paths)) if not whole]
            for index in wanted:
                discard(paths[index])
            job = partial(_write_shard, dataset, function, features, paths)
            for_each(job, wanted, num_proc=num_proc, desc=desc)
    return open_arrow(paths, fingerprint)


def _write_shard(
    dataset: Dataset,
    function: Callable[[pa.RecordBatch], Columns],
    features: Features,
    paths: Sequence[Path],
    index: int,
) -> int:
    stop = min((index + 1) * SHARD, len(dataset))
    starts = range(index * SHARD, stop, BATCH)
    tables = (dataset.with_format("arrow")[start : min(start + BATCH, stop)] for start in starts)
    batches = (batch for table in tables for batch in table.combine_chunks().to_batches())
    write_arrow(paths[index], map(function, batches), features)
    return stop - index * SHARD


def batched_columns(rows: Iterable[tuple[Any, ...]], names: Sequence[str]) -> Iterator[Columns]:
    """Rows of values as batches of columns."""
    batch: list[tuple[Any, ...]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield dict(zip(names, zip(*batch, strict=True), strict=True))
            batch = []
    if batch:
        yield dict(zip(names, zip(*batch, strict=True), strict=True))


def for_each(job: Callable[[int], int], items: Sequence[int], *, num_proc: int | None = None, desc: str) -> None:
    """Calls `job` with every item, which returns how many pairs it has done, on several processes.

    Args:
        job: can be pickled where processes are not forked.
        num_proc: worker processes; None for one a core. A single item needs none.
    """
    processes, runner = min(num_proc or available_cores(), len(items)), _runner.get()
    with progress_bar(desc=desc, unit="pairs", unit_scale=True, shown=bool(items), mininterval=1) as bar:
        if runner is not None and items:
            for pairs in runner(job, items):
                bar.update(pairs)
            return
        if processes < 2:
            for item in items:
                bar.update(job(item))
            return
        with ProcessPoolExecutor(processes, initializer=_start_worker, initargs=(job,)) as pool:
            try:
                for done in as_completed([pool.submit(_work, item) for item in items]):
                    bar.update(done.result())
            except BrokenProcessPool as error:
                raise OSError(
                    f"{desc}: a worker process was killed, perhaps for lack of memory; give the same command again "
                    "with fewer processes (--num-proc): what was finished is kept"
                ) from error
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


Job = Callable[[int], int]
_runner: ContextVar[Callable[[Job, Sequence[int]], Iterable[int]] | None] = ContextVar("runner", default=None)


@contextmanager
def jobs_run_by(run: Callable[[Job, Sequence[int]], Iterable[int]]) -> Iterator[None]:
    """Within, `for_each` leaves its items to `run`, which gives what the job gives for each, in any order.

    The job may be pickled, and the files it names are there under the same names.
    """
    before = _runner.set(run)
    try:
        yield
    finally:
        _runner.reset(before)


_job: Job


def _start_worker(job: Callable[[int], int]) -> None:
    global _job
    _job = job
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread each: there is a process a core
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End with a parent that was killed: a worker would outlive it, and hold its lock."""
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _work(item: int) -> int:
    return _job(item)
