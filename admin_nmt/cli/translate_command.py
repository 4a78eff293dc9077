"""The command translate: text in, translations out."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import (
    Backend,
    Chunk,
    ComputeType,
    Device,
    LengthPenalty,
    MaxTokens,
    Model,
    NumBeams,
    check_device,
    check_output,
    check_text,
    quiet,
    say,
    write_lines,
)


def translate(
    model: Model,
    text: Annotated[
        str | None, typer.Option(callback=check_text, help="A sentence to translate, instead of a file.")
    ] = None,
    input: Annotated[Path | None, typer.Option(help="File of source sentences (.gz too); default stdin.")] = None,
    output: Annotated[
        Path | None, typer.Option(callback=check_output, help="File of translations; default stdout.")
    ] = None,
    num_beams: NumBeams = 5,
    length_penalty: LengthPenalty = None,
    max_tokens: MaxTokens = 4096,
    chunk: Chunk = 2000,
    backend: Backend = "torch",
    compute_type: ComputeType = None,
    device: Device = None,
    hide: Annotated[
        bool, typer.Option("--quiet", help="No warning about sentences unlike the model's training text.")
    ] = False,
) -> None:
    """Translate a file, stdin or one sentence.

    One line in, one line out, in the same order; a blank line stays blank.
    With --output, finished lines are kept in OUTPUT.partial: killed or interrupted, the same command continues there.

    \b
    admin-nmt translate runs/phrasebook/standard --text "Two books cost ten euros."
    admin-nmt translate runs/phrasebook/standard --input test.en --output test.de
    admin-nmt translate runs/phrasebook/standard < test.en > test.de
    """
    if text is not None and input is not None:
        raise typer.BadParameter("give --text or --input, not both")
    if input is not None and output is not None and output.exists() and input.samefile(output):
        raise typer.BadParameter("--output is the file of --input; name another one")

    from ..data.parallel_text import decode_lines, read_lines
    from ..decoding.file_translation import PartialFile, chunks, one_line, translate_file
    from ..decoding.translator import Translator
    from ..folders.model_folder import fingerprint, local_folder

    check_device(device)
    quiet()
    folder = local_folder(model)
    search: dict[str, Any] = {"num_beams": num_beams, "length_penalty": length_penalty}
    engine: dict[str, Any] = {"backend": backend, "compute_type": compute_type}
    load = partial(Translator.from_pretrained, folder, device=device, max_tokens=max_tokens, **search, **engine)

    if text is not None:
        lines: Iterator[str] = iter([text])
    else:
        lines = read_lines(input) if input else decode_lines(sys.stdin.buffer, "stdin")
    progress = text is None
    if output is None:
        translator = load()
        for part in chunks(lines, chunk):
            write_lines(map(one_line, translator.translate(part, progress=progress)))
        return
    with PartialFile(output, {"model": fingerprint(folder)[:16], **search, **engine}) as file:
        if file.lines:
            say(f"continuing after the {file.lines} finished lines of {file.partial}")
        translator = load()
        translate_file(
            lambda part: translator.translate(part, progress=progress), lines, file, chunk_size=chunk, progress=progress
        )
