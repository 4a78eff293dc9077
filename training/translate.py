"""Translate text: one line in, one line out, in the same order; a blank line stays blank.

    python training/translate.py runs/phrasebook/standard --text "The shop opens at half past nine."
    python training/translate.py runs/multi30k-en-de-18-6/standard --input test.en --output test.de --num_beams 5
    python training/translate.py MODEL < test.en > test.de

Sentences are sorted by length and translated in batches under a token budget; progress goes to stderr.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from admin_nmt import Translator
from admin_nmt.parallel_text import decode_lines, read_lines
from cli import parse, run


@dataclass
class Arguments:
    model: str = field(metadata={"help": "Folder or Hub repository of a model."})
    text: str | None = field(default=None, metadata={"help": "A sentence to translate, instead of a file."})
    input: str | None = field(default=None, metadata={"help": "File of source sentences (.gz too); default stdin."})
    output: str | None = field(default=None, metadata={"help": "File of translations; default stdout."})
    num_beams: int = field(default=5, metadata={"help": "Beam size; 1 is greedy search."})
    length_penalty: float = field(default=1.0, metadata={"help": "Scores are divided by length to this power."})
    max_tokens: int = field(default=4096, metadata={"help": "Source positions of a batch."})
    buffer: int = field(default=100_000, metadata={"help": "Lines that are read, sorted and translated together."})


def read(args: Arguments) -> Iterator[str]:
    """The source sentences."""
    if args.text is not None:
        return iter([args.text])
    return read_lines(args.input) if args.input else decode_lines(sys.stdin.buffer, "stdin")


def chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` lines, the last one shorter."""
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def main() -> None:
    args = parse(Arguments, __doc__)
    translator = Translator.from_pretrained(
        args.model, max_tokens=args.max_tokens, num_beams=args.num_beams, length_penalty=args.length_penalty
    )
    with ExitStack() as stack:
        output = sys.stdout
        if args.output:
            output = stack.enter_context(Path(args.output).open("w", encoding="utf-8", newline="\n"))
        for lines in chunks(read(args), args.buffer):
            for translation in translator.translate(lines, progress=args.text is None):
                # A translation with a line break would shift all lines after it.
                print(" ".join(translation.splitlines()), file=output, flush=args.text is not None)


if __name__ == "__main__":
    run(main)
