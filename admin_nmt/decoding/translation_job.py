"""Lines in, translations out: into a file that survives interruptions, or to stdout, by one process or by several."""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..hub.model_folder import fingerprint
from ..system.devices import checked_device
from ..system.loading import loading
from ..system.terminal import progress_bar
from .file_translation import PartialFile, chunks, one_line, translate_file
from .options import Engine, SearchOptions
from .paragraphs import translate_paragraphs
from .streaming import arriving
from .translation_formats import LineTranslator, numbered
from .translator import Translator
from .usual_scores import TranslatedLines, Unusual, add_up_unusual, with_unusual
from .worker_processes import translating

LATENCY = 0.1  # seconds that a line from a terminal or pipe waits for others, to be translated together


@dataclass(frozen=True)
class TranslationJob:
    """Models, search and form of a translation of lines; it is sent to the processes that do it.

    Attributes:
        folders: of the model, or of several as an ensemble.
        writing: gives what is written for some lines, from a translator and these; a [`LineTranslator`] as a rule.
        language: code of the language whose sentences are translated one by one; None for whole lines.
        options: of the search.
        engine: what computes it.
        prepare: called first in each process.
    """

    folders: list[Path]
    writing: Callable[..., list[str]]
    language: str | None
    options: SearchOptions
    engine: Engine
    prepare: Callable[[], None]

    @loading()
    def load(
        self, progress: bool = False, *, device: str | None = None, threads: int | None = None
    ) -> Callable[[list[str]], TranslatedLines]:
        """Load the model, in this process; gives what translates lines.

        Args:
            progress: show a progress bar.
            threads: of this process; None for as many as it has.
        """
        self.prepare()
        if threads is not None:
            torch.set_num_threads(threads)
        translator = Translator.from_pretrained(
            self.folders, device=device, options=self.options, **asdict(self.engine)
        )
        language = self.language
        if language is None:
            return with_unusual(translator, partial(self.writing, translator, progress=progress))

        def paragraphs(lines: list[str]) -> Iterable[str]:
            return map(one_line, translate_paragraphs(translator, lines, language, progress=progress))

        return with_unusual(translator, paragraphs)

    def settings(self) -> dict[str, Any]:
        """Settings that the lines of a file depend on besides their sources, as JSON; without what is as by default."""
        model = "+".join(fingerprint(folder)[:16] for folder in self.folders)
        settings = {"model": model, "split_sentences": self.language}
        if isinstance(self.writing, LineTranslator):
            default = LineTranslator()
            settings |= {name: value for name, value in asdict(self.writing).items() if value != getattr(default, name)}
        return settings | self.options.settings() | self.engine.settings()


def places(device: str | None, processes: int | None) -> list[dict[str, Any]]:
    """The device of each process, and its share of the threads if there are several.

    Args:
        device: one, or several between commas, for a process on each.
        processes: their number; by default that of the devices.

    Raises:
        ValueError: a device is not there, or there are more of them than processes.
    """
    names: list[str | None] = [name.strip() for name in device.split(",")] if device else []
    for name in names:
        checked_device(name)
    if processes and processes < len(names):
        raise ValueError(f"--processes {processes}: --device names {len(names)}; give as many, or leave it out")
    if processes and processes > 1 and not names:
        names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    count = processes or len(names) or 1
    threads = max(1, torch.get_num_threads() // count) if count > 1 else None
    return [{"device": (names or [None])[number % len(names or [None])], "threads": threads} for number in range(count)]


def translate_lines(
    job: TranslationJob,
    lines: Iterable[str],
    processes: Sequence[dict[str, Any]],
    *,
    output: Path | None,
    chunk_size: int,
    is_live: bool,
    progress: bool,
    unusual: Unusual,
    say: Callable[[str], None],
) -> None:
    """Translate lines into a file or to stdout, in their order.

    Args:
        processes: as [`places`] gives them.
        output: the file, where an interrupted translation continues; None for stdout.
        chunk_size: lines that are translated together.
        is_live: somebody may wait for the translation of some lines before giving the others.
        progress: show progress bars.
        unusual: gets the sentences that are unlike the training text.
        say: called with a message for the user.

    Raises:
        ValueError: an option does not fit the model, or the file was begun with other settings or sources.
    """
    inside = progress and len(processes) == 1 and not (is_live and output is None)  # a bar of the lines of a chunk
    with ExitStack() as stack:
        file = None if output is None else stack.enter_context(PartialFile(output, job.settings()))
        finished = file.lines if file else 0
        if file and finished:
            say(f"continuing after the {finished} finished lines of {file.partial}")
        loads = [partial(job.load, inside, **place) for place in processes]
        in_order = add_up_unusual(stack.enter_context(translating(loads)), unusual)
        if isinstance(job.writing, LineTranslator) and job.writing.form == "nbest":
            in_order = numbered(in_order, finished)
        if file:
            translate_file(in_order, lines, file, chunk_size=chunk_size, progress=progress)
            return
        parts = arriving(lines, chunk_size, LATENCY) if is_live else chunks(lines, chunk_size)
        shown = progress and not inside and not sys.stdin.isatty() and not sys.stdout.isatty()
        with progress_bar(desc="lines", unit="line", shown=shown) as bar:
            for part, written in in_order(parts):
                sys.stdout.buffer.write("".join(f"{line}\n" for line in written).encode())
                sys.stdout.buffer.flush()
                bar.update(len(part))
