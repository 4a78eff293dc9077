"""The command translate: lines in, translations out.

Which lines go in and out, and which processes translate them, is decided in `translate`; what is written for a line, by
`admin_nmt.decoding.translation_formats`, for which `load_translator` loads the model in each of these processes.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..decoding.options import Engine, SearchOptions
from .options import (
    Chunk,
    EngineArguments,
    SearchArguments,
    check_device,
    check_language,
    check_output,
)
from .output import loading, quiet, say, write_lines
from .parsing import expanded

if TYPE_CHECKING:
    from ..decoding.translation_formats import LineTranslator
    from ..decoding.usual_scores import Unusual

LATENCY = 0.1  # seconds that a line from a terminal or pipe waits for others, to be translated together


@dataclass(frozen=True)
class InputArguments:
    """Input.

    What is translated: one text, a file, or stdin.
    """

    text: Annotated[str | None, typer.Option(help="Text to translate, instead of a file.")] = None
    input: Annotated[Path | None, typer.Option(help="File of source sentences (.gz too); default: stdin.")] = None
    split_sentences: Annotated[
        bool, typer.Option("--split-sentences", help="Split lines into sentences and translate one by one.")
    ] = False
    source_language: Annotated[
        str | None,
        typer.Option(callback=check_language, help="Language code for --split-sentences; default: the model's."),
    ] = None

    def __post_init__(self) -> None:
        if self.text is not None and self.input is not None:
            raise ValueError("give --text or --input, not both")
        if self.source_language is not None and not self.split_sentences:
            raise ValueError("--source-language goes with --split-sentences; add that, or leave it out")

    def lines(self) -> tuple[Iterator[str], bool]:
        """The lines, and whether somebody may wait for some translations before giving the other lines."""
        from ..data.text_lines import decode_lines, read_lines
        from ..decoding.streaming import is_live

        if self.text is not None:
            return iter([self.text]), False
        if self.input is not None:
            return read_lines(self.input), is_live(self.input)
        try:
            descriptor = sys.stdin.fileno()
        except OSError:  # another object was put in its place
            return decode_lines(sys.stdin.buffer, "stdin"), False
        # A thread may be reading when the program ends, which would fail over the lock of sys.stdin.buffer.
        return decode_lines(open(descriptor, "rb", closefd=False), "stdin"), is_live(descriptor)

    def language(self, folder: Path) -> str | None:
        """The language whose sentences are split; None to translate whole lines.

        Raises:
            ValueError: neither the option nor the model names one.
        """
        from ..hub.model_info import model_languages

        if not self.split_sentences:
            return None
        if (language := self.source_language or model_languages(folder)[0]) is None:
            raise ValueError(f"{folder}: does not tell its source language; add --source-language, such as en")
        return language


@dataclass(frozen=True)
class OutputArguments:
    """Output.

    What is written for each line, and where.
    """

    output: Annotated[
        Path | None, typer.Option(callback=check_output, help="File of translations; default: stdout.")
    ] = None
    nbest: Annotated[int, typer.Option(min=1, help="Number of hypotheses to print, at most the beam size.")] = 1
    form: Annotated[
        Literal["text", "nbest", "jsonl"] | None,
        typer.Option(
            "--format",
            help="text: the translation; nbest: number ||| translation ||| score; jsonl: an object with scores and "
            "tokens. Default: nbest with --nbest, else text.",
        ),
    ] = None
    alignment: Annotated[bool, typer.Option("--alignment", help="Print word alignments (0-0 1-2, source-target).")] = (
        False
    )
    alignment_layer: Annotated[
        int | None,
        typer.Option(help="Decoder layer for alignments, 0 the first, -1 the last; default: -2."),
    ] = None
    target_prefix: Annotated[str | None, typer.Option(help="Force translations to begin with this text.")] = None
    prefixed_input: Annotated[
        bool, typer.Option("--prefixed-input", help="Read source, tab and target prefix from each line.")
    ] = False
    no_warning: Annotated[
        bool, typer.Option("--quiet", help="Do not warn about sentences unlike the training text.")
    ] = False

    def __post_init__(self) -> None:
        if self.form == "text" and self.nbest > 1:
            raise ValueError("--format text has one translation a line; leave --nbest out, or --format")
        if self.target_prefix is not None and self.prefixed_input:
            raise ValueError("give --target-prefix or --prefixed-input, not both")

    def line_translator(self) -> "LineTranslator":
        """Make the translator of lines into what is written."""
        from ..decoding.translation_formats import LineTranslator

        form = self.form or ("nbest" if self.nbest > 1 else "text")
        align = self.alignment or self.alignment_layer is not None
        return LineTranslator(form, align, self.alignment_layer, self.target_prefix, self.prefixed_input)


@expanded
def translate(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="Folder or Hub repository; several translate as an ensemble.", show_default=False
        ),
    ],
    source: InputArguments,
    target: OutputArguments,
    search: SearchArguments,
    engine: EngineArguments,
    chunk: Chunk = 2000,
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda, cuda:1, …, or cuda:0,cuda:1,… for a process on each; default: a GPU if any."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of processes, each with a model, sharing devices or cores.")
    ] = None,
) -> None:
    """Translate a file, stdin or one sentence.

    One line in, one line out, in the same order; a blank line stays blank.
    With --output, finished lines are kept in OUTPUT.partial: killed or interrupted, the same command continues there.
    Without, a line from a terminal or pipe is answered as soon as it can be.
    At the end a line on stderr says how many sentences score far below the model's validation text.

    \b
    admin-nmt translate runs/phrasebook/standard --text "Two books cost ten euros."
    admin-nmt translate runs/phrasebook/standard --input test.en --output test.de --processes 2
    admin-nmt translate runs/phrasebook/standard --split-sentences < paragraphs.en > paragraphs.de
    admin-nmt translate runs/phrasebook/standard --nbest 3 --alignment --text "Two books cost ten euros."
    admin-nmt translate runs/seed-1/standard runs/seed-2/standard --input test.en --output test.de
    """
    output = target.output
    if source.input is not None and output is not None and output.exists() and source.input.samefile(output):
        raise typer.BadParameter("--output is the file of --input; name another one")

    with loading():
        from ..decoding.file_translation import PartialFile, translate_file
        from ..decoding.translation_formats import LineTranslator, numbered
        from ..decoding.usual_scores import Unusual, add_up_unusual
        from ..decoding.worker_processes import translating
        from ..hub.model_folder import local_folder

    writing = target.line_translator()
    if source.split_sentences and (target.nbest > 1 or writing != LineTranslator()):
        raise typer.BadParameter("--split-sentences gives one translation a line, as text, without anything besides")
    places = _places(device, processes)
    quiet()
    folders = [local_folder(model) for model in models]
    options = search.options(folders[0], nbest=target.nbest)
    language = source.language(folders[0])
    lines, is_live = source.lines()
    progress = len(places) == 1 and source.text is None and not (is_live and output is None)
    load = partial(load_translator, folders, language, writing, progress, options, engine)
    unusual = Unusual()
    with ExitStack() as stack:
        if output is not None:
            settings = (
                _settings(folders, writing) | {"split_sentences": language} | options.settings() | engine.settings()
            )
            file = stack.enter_context(PartialFile(output, settings))
            if file.lines:
                say(f"continuing after the {file.lines} finished lines of {file.partial}")
        if not target.no_warning:
            stack.callback(_warn, unusual)
        in_order = stack.enter_context(translating([partial(load, **place) for place in places]))
        in_order = add_up_unusual(in_order, unusual)
        if writing.form == "nbest":
            in_order = numbered(in_order, file.lines if output is not None else 0)
        shown = source.text is None
        if output is not None:
            translate_file(in_order, lines, file, chunk_size=chunk, progress=shown)
        else:
            _answer(in_order, lines, chunk, LATENCY if is_live else None, progress=not progress and shown)


def _warn(unusual: "Unusual") -> None:
    """Say on stderr how many sentences were unlike the training text, if any were."""
    if unusual.count:
        say(f"warning: {unusual.message()}")


@loading()
def load_translator(
    folders: list[Path],
    language: str | None,
    writing: "LineTranslator",
    progress: bool,
    options: SearchOptions,
    engine: Engine,
    *,
    device: str | None = None,
    threads: int | None = None,
) -> Callable[[list[str]], list[str]]:
    """Load what gives the lines to write for some lines; called in the process that translates.

    Args:
        folders: of the model, or of several as an ensemble.
        language: code of the language whose sentences are translated one by one; None for whole lines.
        writing: what is written for whole lines.
        progress: show a progress bar.
        options: of the search.
        engine: what computes it, on this `device`.
        threads: of the process; by default as many as it has.
    """
    quiet()
    import torch

    from ..decoding.file_translation import one_line
    from ..decoding.translator import Translator
    from ..decoding.usual_scores import with_unusual

    if threads is not None:
        torch.set_num_threads(threads)
    translator = Translator.from_pretrained(folders, device=device, options=options, **asdict(engine))
    if language is None:
        return with_unusual(translator, partial(writing, translator, progress=progress))
    from ..decoding.paragraphs import translate_paragraphs

    return with_unusual(
        translator, lambda lines: map(one_line, translate_paragraphs(translator, lines, language, progress=progress))
    )


def _settings(folders: list[Path], writing: "LineTranslator") -> dict[str, Any]:
    """Settings that the lines of a file depend on besides search and engine, as JSON; without what is as by default."""
    from ..hub.model_folder import fingerprint

    model = "+".join(fingerprint(folder)[:16] for folder in folders)
    written = {name: value for name, value in asdict(writing).items() if value != getattr(type(writing), name)}
    return {"model": model} | written


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


def _answer(
    in_order: Callable[[Iterable[list[str]]], Iterable[tuple[list[str], Any]]],
    lines: Iterator[str],
    chunk: int,
    latency: float | None,
    *,
    progress: bool,
) -> None:
    """Write translations to stdout as they come; with a `latency`, of what has come by then."""
    from ..decoding.file_translation import chunks
    from ..decoding.streaming import arriving
    from ..system.terminal import progress_bar

    parts = chunks(lines, chunk) if latency is None else arriving(lines, chunk, latency)
    shown = progress and not sys.stdin.isatty() and not sys.stdout.isatty()
    with progress_bar(desc="lines", unit="line", shown=shown) as bar:
        for part, written in in_order(parts):
            write_lines(written)
            bar.update(len(part))
