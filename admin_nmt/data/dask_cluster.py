"""Shards and chunks of lines, given to the workers of a Dask cluster, which share a folder with this machine.

What is worked on and what comes of it lies in the shared folder; Dask carries the numbers of shards, and lines of text.
It gives a dead worker's part to another, and takes in workers that come while it works.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

NEEDS_DASK = "--cluster needs Dask: pip install 'admin_nmt[cluster]', here and on the machines of the workers"
# Whose other releases may give other bytes.
PACKAGES = ("admin_nmt", "datasets", "pyarrow", "tokenizers", "torch", "transformers")
AHEAD = 2  # chunks that each worker may have been given before the first of them is asked for
PATIENCE = 60.0  # seconds in which the scheduler has to answer, and a worker has to be there

Lines = list[str]


class Cluster:
    """The workers of a Dask cluster; a context manager.

    Args:
        address: of the scheduler, tcp://HOST:PORT, or the file that `dask scheduler --scheduler-file` wrote.
        paths: files and folders that every worker has to see under these names.

    Raises:
        ImportError: Dask is not installed.
        ValueError: there is no scheduler or no worker, or a worker sees other files or has other packages.
    """

    def __init__(self, address: str, paths: Sequence[str | Path] = ()) -> None:
        if find_spec("distributed") is None:
            raise ImportError(NEEDS_DASK)
        self.address, self.paths = address, [os.path.abspath(path) for path in paths]

    def __enter__(self) -> Self:
        from distributed import Client

        if "://" not in self.address and not Path(self.address).is_file():
            raise ValueError(f"--cluster {self.address}: is neither tcp://HOST:PORT nor a scheduler's file")
        given = {"address": self.address} if "://" in self.address else {"scheduler_file": self.address}
        try:
            self.client = Client(**given, timeout=PATIENCE)
        except (OSError, ValueError) as error:
            raise ValueError(f"--cluster {self.address}: no scheduler answers there ({error}); start one") from error
        try:
            self._check()
        except BaseException:
            self.client.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _check(self) -> None:
        try:
            self.client.wait_for_workers(1, PATIENCE)
        except TimeoutError as error:
            raise ValueError(
                f"--cluster {self.address}: the scheduler has no workers; start some, dask worker {self.address}"
            ) from error
        own = {name: version(name) for name in PACKAGES}
        for worker, found in self.client.run(_differences, [os.getcwd(), *self.paths], own).items():
            if found:
                raise ValueError(f"the worker {worker} {found[0]}")

    def workers(self) -> int:
        """Number of threads of all workers."""
        return sum(self.client.nthreads().values())

    def run(self, job: Callable[[int], int], items: Sequence[int]) -> Iterator[int]:
        """Yield what `job` returns for each item, in the order in which they are done.

        Raises:
            OSError: several workers were killed over one item.
        """
        from distributed import as_completed

        futures = self.client.map(_task(lambda: job), items, pure=False)
        try:
            for future in as_completed(futures):
                yield _result(future)
        finally:
            self.client.cancel(futures)

    def in_order(self, load: Callable[[], Callable[[Lines], Sequence[str]]]) -> Callable[[Iterable[Lines]], Any]:
        """Function that yields each chunk of lines with what is written for them, in order.

        Args:
            load: gives the function that translates a list of lines; it is pickled, and called once in each worker.
        """
        return partial(self._in_order, _task(load))

    def _in_order(
        self, task: Callable[[Lines], Sequence[str]], chunks: Iterable[Lines]
    ) -> Iterator[tuple[Lines, Sequence[str]]]:
        waiting = deque[tuple[Lines, Any]]()
        try:
            for chunk in chunks:
                waiting.append((chunk, self.client.submit(task, chunk, pure=False)))
                if len(waiting) > AHEAD * self.workers():
                    yield waiting[0][0], _result(waiting[0][1])
                    waiting.popleft()
            while waiting:
                yield waiting[0][0], _result(waiting[0][1])
                waiting.popleft()
        finally:
            self.client.cancel([future for _, future in waiting])


def _task(load: Callable[[], Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """The function that `load` gives, which each worker loads once, in the folder that relative names belong to."""
    import cloudpickle

    return partial(_call, uuid4().hex, cloudpickle.dumps(load), os.getcwd())


def _call(use: str, load: bytes, folder: str, item: Any) -> Any:
    return _loaded(use, load, folder)(item)


@lru_cache(maxsize=1)
def _loaded(use: str, load: bytes, folder: str) -> Callable[[Any], Any]:
    """Function that `load` gives, loaded anew for each `use`: the files it reads may be others by then."""
    import cloudpickle

    os.chdir(folder)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread each: there is a worker a core
    function: Callable[[Any], Any] = cloudpickle.loads(load)()
    return function


def _result(future: Any) -> Any:
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise OSError(
            "several workers were killed over the same part, perhaps for lack of memory; give the same command again, "
            "with fewer workers a machine: what was finished is kept"
        ) from error


def _differences(paths: Sequence[str], packages: dict[str, str]) -> list[str]:
    """Names the paths that a worker does not see, and the packages that it has in other releases."""
    missing = [
        f"does not see {path}; it must be a folder that both share" for path in paths if not os.path.exists(path)
    ]
    others = {name: found for name, own in packages.items() if (found := version(name)) != own}
    return missing + [f"has {name} {found}, and this machine {packages[name]}" for name, found in others.items()]
