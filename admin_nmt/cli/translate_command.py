"""The command translate: lines in, translations out."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..system.loading import loading
from .options import (
    Chunk,
    Devices,
    EngineArguments,
    Processes,
    SearchArguments,
    check_language,
    check_output,
)
from .output import quiet, say
from .parsing import expanded

if TYPE_CHECKING:
    from ..decoding.translation_formats import LineTranslator


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
    device: Devices = None,
    processes: Processes = None,
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
        from ..decoding.translation_formats import LineTranslator
        from ..decoding.translation_job import TranslationJob, places, translate_lines
        from ..decoding.usual_scores import Unusual
        from ..hub.model_folder import local_folder

    writing = target.line_translator()
    if source.split_sentences and (target.nbest > 1 or writing != LineTranslator()):
        raise typer.BadParameter("--split-sentences gives one translation a line, as text, without anything besides")
    where = places(device, processes)
    quiet()
    folders = [local_folder(model) for model in models]
    options = search.options(folders[0], nbest=target.nbest)
    job = TranslationJob(folders, writing, source.language(folders[0]), options, engine, quiet)
    lines, is_live = source.lines()
    unusual = Unusual()
    try:
        translate_lines(
            job,
            lines,
            where,
            output=output,
            chunk_size=chunk,
            is_live=is_live,
            progress=source.text is None,
            unusual=unusual,
            say=say,
        )
    finally:
        if unusual.count and not target.no_warning:
            say(f"warning: {unusual.message()}")
