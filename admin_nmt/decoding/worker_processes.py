"""Lines translated by several processes on one machine, each with a model of its own, in the order of one process.

`synthesize` under accelerate's launcher is another way: its processes share every chunk and wait for each other after
it. Here each takes a whole chunk, nobody waits, and nothing has to be launched.
"""

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self

from ..system.errors import describe, user_errors

Lines = list[str]
Translate = Callable[[Lines], Sequence[str]]  # gives what is written for each of the lines
Load = Callable[[], Translate]
Parts = Iterator[tuple[Lines, Sequence[str]]]  # lines with what is written for them
InOrder = Callable[[Iterable[Lines]], Parts]  # gives all chunks in their order
AHEAD = 2  # chunks that each process may have been given before the first of them is asked for


@contextmanager
def translating(loads: Sequence[Load]) -> Iterator[Callable[[Iterable[Lines]], Parts]]:
    """What gives chunks with their translations, in order: this process for one of `loads`, or [`WorkerProcesses`]."""
    if len(loads) == 1:
        yield one_after_the_other(loads[0]())
    else:
        with WorkerProcesses(loads) as processes:
            yield processes


def one_after_the_other(translate: Translate) -> Callable[[Iterable[Lines]], Parts]:
    """What [`WorkerProcesses`] does, in this process."""
    return lambda chunks: ((chunk, translate(chunk)) for chunk in chunks)


class _Done(NamedTuple):
    number: int
    chunk: Lines
    outcome: Sequence[str] | Exception


class WorkerProcesses:
    """Processes that translate chunks of lines; a context manager, which ends them.

    A chunk that fails raises when its turn comes: all chunks before it have been given then.

    Args:
        loads: for each process, what loads its model and gives the function that translates a list of lines; they are
            pickled, and called in the new processes.
    """

    def __init__(self, loads: Sequence[Load]) -> None:
        self.loads = loads

    def __enter__(self) -> Self:
        context, self.ends = get_context("spawn"), []
        with _ignoring_interrupts():  # which new processes inherit: this one ends them
            for load in self.loads:
                here, there = context.Pipe()
                process = context.Process(target=_serve, args=(there, load), daemon=True)
                process.start()
                there.close()  # so that the death of the process is the end of the pipe
                self.ends.append((process, here))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, _ in self.ends:
            process.terminate()
        for process, _ in self.ends:
            process.join()

    def __call__(self, chunks: Iterable[Lines]) -> Parts:
        """Each chunk with its translations, in order, as soon as they are there.

        A thread for each process takes the chunks, so an iterator that waits for input holds nothing up that is done.

        Raises:
            ValueError: a process could not translate a chunk for a reason that the user can mend.
            ChildProcessError: one was killed.
            RuntimeError: a bug; the message holds the traceback of the process.
        """
        source, done = _Source(chunks), SimpleQueue[_Done | None]()
        window = threading.Semaphore(AHEAD * len(self.ends))
        for process, connection in self.ends:
            threading.Thread(target=_feed, args=(process, connection, source, window, done), daemon=True).start()
        waiting: dict[int, _Done] = {}
        number, busy = 0, len(self.ends)
        while busy or waiting:
            if number not in waiting:
                if (news := done.get()) is None:
                    busy -= 1
                else:
                    waiting[news.number] = news
                continue
            _, chunk, outcome = waiting.pop(number)
            if isinstance(outcome, Exception):
                raise outcome
            yield chunk, outcome
            window.release()
            number += 1


class _Source:
    """An iterator of chunks that threads share; an error of its own stands where a chunk would."""

    def __init__(self, chunks: Iterable[Lines]) -> None:
        self.chunks, self.lock, self.taken = iter(chunks), threading.Lock(), 0

    def take(self) -> tuple[int, Lines | Exception] | None:
        """The number of the next chunk, from 0, and the chunk; None at the end."""
        with self.lock:
            chunk: Lines | Exception
            try:
                chunk = next(self.chunks)
            except StopIteration:
                return None
            except Exception as error:
                chunk = error
            self.taken += 1
            return self.taken - 1, chunk


def _feed(
    process: BaseProcess,
    connection: Connection,
    source: _Source,
    window: threading.Semaphore,
    done: SimpleQueue[_Done | None],
) -> None:
    """Give a process one chunk after the other; a thread of the first process."""
    while window.acquire() and (taken := source.take()):
        number, chunk = taken
        if isinstance(chunk, Exception):
            done.put(_Done(number, [], chunk))
        else:
            done.put(_Done(number, chunk, _ask(process, connection, chunk)))
    done.put(None)


def _ask(process: BaseProcess, connection: Connection, chunk: Lines) -> Sequence[str] | Exception:
    try:
        connection.send(chunk)
        return connection.recv()
    except (EOFError, OSError):
        process.join()
        return ChildProcessError(
            f"a process that translates was killed (exit code {process.exitcode}), perhaps for lack of memory; "
            "give the same command again, with fewer processes"
        )


def _serve(connection: Connection, load: Load) -> None:
    """Translate what comes, until the first process ends this one or has gone; a new process runs this."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # so that it releases what it holds
    translate = _outcome(load)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            chunk = connection.recv()
            connection.send(translate if isinstance(translate, Exception) else _outcome(partial(translate, chunk)))


def _outcome(function: Callable[[], Any]) -> Any:
    """What a function gives, or an error that can be sent to another process."""
    try:
        return function()
    except user_errors() as error:
        return ValueError(describe(error))
    except Exception:
        return RuntimeError(f"in a process that translates:\n{traceback.format_exc()}")


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
