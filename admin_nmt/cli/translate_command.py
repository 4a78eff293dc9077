"""The command translate: lines in, translations out.

Which lines go in and out, and which processes translate them, is decided in `translate`; what is written for a line, in
`load_translator`, which runs in each of these processes.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import (
    Backend,
    Chunk,
    ComputeType,
    LengthPenalty,
    MaxTokens,
    Model,
    NumBeams,
    check_device,
    check_finite,
    check_language,
    check_output,
    check_text,
    quiet,
    say,
    write_lines,
)

Text = Annotated[str | None, typer.Option(callback=check_text, help="A text to translate, instead of a file.")]
Input = Annotated[Path | None, typer.Option(help="File of source sentences (.gz too); default stdin.")]
Output = Annotated[Path | None, typer.Option(callback=check_output, help="File of translations; default stdout.")]
SplitSentences = Annotated[
    bool, typer.Option("--split-sentences", help="Translate lines of several sentences sentence by sentence.")
]
SourceLanguage = Annotated[
    str | None,
    typer.Option(
        callback=lambda code: code and check_language(code),
        help="Code of the language that --split-sentences splits; by default what the model's folder tells.",
    ),
]
Latency = Annotated[
    float,
    typer.Option(callback=check_finite, help="Seconds that a line of a terminal or pipe waits for others to join it."),
]
Devices = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1, … or cuda:0,cuda:1,…, a process on each; by default a GPU if there is one."),
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Processes, each with a model, that share the devices or the cores.")
]


def translate(
    model: Model,
    text: Text = None,
    input: Input = None,
    output: Output = None,
    split_sentences: SplitSentences = False,
    source_language: SourceLanguage = None,
    num_beams: NumBeams = 5,
    length_penalty: LengthPenalty = None,
    max_tokens: MaxTokens = 4096,
    chunk: Chunk = 2000,
    latency: Latency = 0.1,
    backend: Backend = "torch",
    compute_type: ComputeType = None,
    device: Devices = None,
    processes: Processes = None,
) -> None:
    """Translate a file, stdin or one sentence.

    One line in, one line out, in the same order; a blank line stays blank.
    With --output, finished lines are kept in OUTPUT.partial: killed or interrupted, the same command continues there.
    Without, a line from a terminal or pipe is answered as soon as it can be.

    \b
    admin-nmt translate runs/phrasebook/standard --text "Two books cost ten euros."
    admin-nmt translate runs/phrasebook/standard --input test.en --output test.de --processes 2
    admin-nmt translate runs/phrasebook/standard --split-sentences < paragraphs.en > paragraphs.de
    """
    if text is not None and input is not None:
        raise typer.BadParameter("give --text or --input, not both")
    if input is not None and output is not None and output.exists() and input.samefile(output):
        raise typer.BadParameter("--output is the file of --input; name another one")

    from ..decoding.file_translation import PartialFile, translate_file
    from ..decoding.worker_processes import translating
    from ..folders.model_folder import fingerprint, local_folder

    places = _places(device, processes)
    quiet()
    folder = local_folder(model)
    search: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty}
    engine: dict[str, Any] = {"backend": backend, "compute_type": compute_type}
    language = _language(folder, source_language) if split_sentences else None
    lines, is_live = _source(text, input)
    progress = len(places) == 1 and text is None and not (is_live and output is None)
    load = partial(load_translator, folder, language, progress, max_tokens=max_tokens, **search, **engine)
    with ExitStack() as stack:
        if output is not None:
            settings = {"model": fingerprint(folder)[:16], "split_sentences": language, **search, **engine}
            file = stack.enter_context(PartialFile(output, settings))
            if file.lines:
                say(f"continuing after the {file.lines} finished lines of {file.partial}")
        in_order = stack.enter_context(translating([partial(load, **place) for place in places]))
        if output is not None:
            translate_file(in_order, lines, file, chunk_size=chunk, progress=text is None)
        else:
            _answer(in_order, lines, chunk, latency if is_live else None, progress=not progress and text is None)


def load_translator(
    folder: Path, language: str | None, progress: bool, *, threads: int | None = None, **options: Any
) -> Callable[[list[str]], list[str]]:
    """A function that gives what is written for each of some lines; called in the process that translates.

    Args:
        language: code of the language whose sentences are translated one by one; None for whole lines.
        progress: show a progress bar.
        threads: of the process; by default as many as it has.
        options: arguments of `Translator.from_pretrained`.
    """
    quiet()
    import torch

    from ..decoding.file_translation import one_line
    from ..decoding.translator import Translator

    if threads is not None:
        torch.set_num_threads(threads)
    translator = Translator.from_pretrained(folder, **options)
    if language is None:
        return lambda lines: list(map(one_line, translator.translate(lines, progress=progress)))
    from ..decoding.paragraphs import translate_paragraphs

    return lambda lines: list(map(one_line, translate_paragraphs(translator, lines, language, progress=progress)))


def _places(device: str | None, processes: int | None) -> list[dict[str, Any]]:
    """The device of each process, and its share of the threads if there are several."""
    import torch

    names: list[str | None] = [name.strip() for name in device.split(",")] if device else []
    for name in names:
        check_device(name)
    if processes and processes < len(names):
        raise typer.BadParameter(f"--processes {processes}: --device names {len(names)}; give as many, or leave it out")
    if processes and processes > 1 and not names:
        names = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    count = processes or len(names) or 1
    threads = max(1, torch.get_num_threads() // count) if count > 1 else None
    return [{"device": (names or [None])[number % len(names or [None])], "threads": threads} for number in range(count)]


def _language(folder: Path, given: str | None) -> str:
    """The language to split.

    Raises:
        ValueError: nobody tells.
    """
    from ..folders.source_language import source_language

    if (language := given or source_language(folder)) is None:
        raise ValueError(f"{folder}: does not tell its source language; add --source-language, such as en")
    return language


def _source(text: str | None, path: Path | None) -> tuple[Iterator[str], bool]:
    """The lines to translate, and whether somebody may wait for answers to some before giving the others."""
    from ..data.parallel_text import decode_lines, read_lines
    from ..decoding.streaming import is_live

    if text is not None:
        return iter([text]), False
    if path is not None:
        return read_lines(path), is_live(path)
    try:
        descriptor = sys.stdin.fileno()
    except OSError:  # another object was put in its place
        return decode_lines(sys.stdin.buffer, "stdin"), False
    # A thread may be reading when the program ends, which would fail over the lock of sys.stdin.buffer.
    return decode_lines(open(descriptor, "rb", closefd=False), "stdin"), is_live(descriptor)


def _answer(
    in_order: Callable[[Iterable[list[str]]], Iterable[tuple[list[str], Any]]],
    lines: Iterator[str],
    chunk: int,
    latency: float | None,
    *,
    progress: bool,
) -> None:
    """Write translations to stdout as they come; with a `latency`, of what has come by then."""
    from tqdm import tqdm

    from ..decoding.file_translation import chunks
    from ..decoding.streaming import arriving

    parts = chunks(lines, chunk) if latency is None else arriving(lines, chunk, latency)
    hidden = not progress or sys.stdin.isatty() or sys.stdout.isatty()
    with tqdm(desc="lines", unit="line", leave=False, disable=hidden) as bar:
        for part, written in in_order(parts):
            write_lines(written)
            bar.update(len(part))
