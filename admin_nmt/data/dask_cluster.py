"""Shards and chunks of lines, given to the workers of a Dask cluster, which share a folder with this machine.

What is worked on and what comes of it lies in the shared folder; Dask carries the numbers of shards, and lines of text.
It gives a dead worker's part to another, and takes in workers that come while it works.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
        ends = time.monotonic() + PATIENCE
        while not self.workers():
            if time.monotonic() > ends:
                raise ValueError(
                    f"--cluster {self.address}: the scheduler has no workers; start some, dask worker {self.address}"
                )
            time.sleep(0.1)
        own = {name: version(name) for name in PACKAGES}
        for worker, (missing, others) in self.client.run(_differences, [os.getcwd(), *self.paths], own).items():
            if missing:
                raise ValueError(f"the worker {worker} does not see {missing[0]}; it must be a folder that both share")
            for name, other in others.items():
                raise ValueError(f"the worker {worker} has {name} {other}, and this machine {own[name]}; install one")

    def workers(self) -> int:
        """Number of threads of all workers."""
        return sum(self.client.nthreads().values())

    def run(self, job: Callable[[int], int], items: Sequence[int]) -> Iterator[int]:
        """Yield what `job` returns for each item, in the order in which they are done.

        Raises:
            OSError: several workers were killed over one item.
        """
        from distributed import as_completed

        with self._shared_function(lambda: job) as name:
            futures = self.client.map(_call, [name] * len(items), items, pure=False)
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
        return lambda chunks: self._in_order(load, chunks)

    def _in_order(
        self, load: Callable[[], Callable[[Lines], Sequence[str]]], chunks: Iterable[Lines]
    ) -> Iterator[tuple[Lines, Sequence[str]]]:
        waiting = deque[tuple[Lines, Any]]()
        with self._shared_function(load) as name:
            try:
                for chunk in chunks:
                    waiting.append((chunk, self.client.submit(_call, name, chunk, pure=False)))
                    if len(waiting) > AHEAD * self.workers():
                        yield waiting[0][0], _result(waiting[0][1])
                        waiting.popleft()
                while waiting:
                    yield waiting[0][0], _result(waiting[0][1])
                    waiting.popleft()
            finally:
                self.client.cancel([future for _, future in waiting])

    @contextmanager
    def _shared_function(self, load: Callable[[], Callable[[Any], Any]]) -> Iterator[str]:
        """Name under which every worker, also one that comes later, has the function that `load` gives."""
        import cloudpickle

        name = f"admin_nmt-{uuid4()}"
        self.client.register_plugin(_plugin(cloudpickle.dumps(load), os.getcwd()), name=name)
        try:
            yield name
        finally:
            self.client.unregister_worker_plugin(name)


def _plugin(load: bytes, folder: str) -> Any:
    from distributed import WorkerPlugin

    class Work(WorkerPlugin):
        """Function that is loaded where it is first called, in the folder that relative names belong to."""

        function: Any = None

        def setup(self, worker: Any) -> None:
            os.chdir(folder)
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread each: there is a worker a core

        def __call__(self, item: Any) -> Any:
            if self.function is None:
                import cloudpickle

                self.function = cloudpickle.loads(load)()
            return self.function(item)

    return Work()


def _call(name: str, item: Any) -> Any:
    from distributed import get_worker

    plugin: Any = get_worker().plugins[name]
    return plugin(item)


def _result(future: Any) -> Any:
    from distributed import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise OSError(
            "several workers were killed over the same part, perhaps for lack of memory; give the same command again, "
            "with fewer workers a machine: what was finished is kept"
        ) from error


def _differences(paths: Sequence[str], packages: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Paths that a worker does not see, and packages that it has in other releases."""
    found = {name: version(name) for name in packages}
    missing = [path for path in paths if not os.path.exists(path)]
    return missing, {name: found[name] for name in packages if found[name] != packages[name]}
