"""Lines translated by several processes on one machine, each with a model of its own, in the order of one process.

Each process takes a whole chunk, nobody waits, and nothing has to be launched.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from typing import Any

from ..system.errors import describe, user_errors

Lines = list[str]
Translate = Callable[[Lines], Sequence[str]]  # gives what is written for each of the lines
Load = Callable[[], Translate]
Parts = Iterator[tuple[Lines, Sequence[str]]]  # lines with what is written for them
InOrder = Callable[[Iterable[Lines]], Parts]  # gives all chunks in their order
AHEAD = 2  # chunks that each process may have been given before the first of them is asked for


def one_after_the_other(translate: Translate) -> InOrder:
    """Chunks with their translations, by this process."""
    return lambda chunks: ((chunk, translate(chunk)) for chunk in chunks)


@contextmanager
def translating(loads: Sequence[Load]) -> Iterator[InOrder]:
    """A function that gives chunks with their translations, in order, as soon as they are there.

    A chunk that fails raises when its turn comes.

    Args:
        loads: for each process, what loads its model and gives the function that translates a list of lines; they are
            pickled, and called in new processes. One alone is called in this process.

    Raises:
        ValueError: a process could not translate a chunk for a reason that the user can mend.
        ChildProcessError: one was killed.
    """
    if len(loads) == 1:
        yield one_after_the_other(loads[0]())
        return
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    places = context.SimpleQueue()
    for load in loads:
        places.put(load)
    pool = ProcessPoolExecutor(len(loads), context, _begin, (places,))
    try:
        yield lambda chunks: _in_order(pool, chunks, AHEAD * len(loads))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        ours = set(multiprocessing.active_children()) - set(others)
        for process in ours:  # nobody waits for what they still do
            process.terminate()
        for process in ours:
            process.join()
        raise
    pool.shutdown()


def _in_order(pool: ProcessPoolExecutor, chunks: Iterable[Lines], ahead: int) -> Parts:
    """All chunks with their translations; a thread takes them, for the iterator may wait for somebody's input."""
    queue: Queue[tuple[Lines, Future] | BaseException | None] = Queue(ahead)

    def take() -> None:
        end: BaseException | None = None
        try:
            for chunk in chunks:
                queue.put((chunk, pool.submit(_translate, chunk)))
        except BaseException as error:
            end = error
        queue.put(end)

    Thread(target=take, daemon=True).start()
    while (taken := queue.get()) is not None:
        try:
            if isinstance(taken, BaseException):
                raise taken
            translations = taken[1].result()
        except BrokenProcessPool as error:
            raise ChildProcessError(
                "a process that translates was killed, perhaps for lack of memory; give the same command again, with "
                "fewer processes"
            ) from error
        yield taken[0], translations


_load: Load
_loaded: Translate | None = None  # of a process of the pool


def _begin(places: Any) -> None:
    """Runs first in each process of the pool: takes one of the places, and ends with the process that started it."""
    global _load
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the first ends these
    _load = places.get()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()  # type: ignore[union-attr]
    os._exit(1)


def _translate(chunk: Lines) -> Sequence[str]:
    global _loaded
    try:
        if _loaded is None:
            _loaded = _load()
        return _loaded(chunk)
    except user_errors() as error:  # as a class that can be sent
        raise ValueError(describe(error)) from None
