"""Output of the commands, and silence of the libraries below them."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from ..system.files import json_text, whole_file


def quiet() -> None:
    """Load transformers with our classes, and leave progress to the commands' own bars and warnings unsaid."""
    import transformers

    from ..registration import register_auto_classes

    register_auto_classes()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if "datasets" in sys.modules:
        from datasets import disable_progress_bars

        disable_progress_bars()
    else:  # which takes half a second to load, and many commands never need it
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")


def write_lines(lines: Iterable[str], output: Path | None = None) -> None:
    """Write UTF-8 lines to a file, which appears when it is complete, or to stdout."""
    data = "".join(f"{line}\n" for line in lines).encode()
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        with whole_file(output) as temporary:
            temporary.write_bytes(data)


def print_json(value: Any) -> None:
    """Print indented JSON; see `json_text`."""
    write_lines([json_text(value, indent=2)])


def show_markdown(text: str) -> None:
    """Print Markdown: laid out on a terminal, as it is into a file."""
    if not sys.stdout.isatty():
        write_lines(text.splitlines())
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def say(message: str) -> None:
    """Write a message to stderr, on a line of its own even where a progress bar is being drawn."""
    if "tqdm" in sys.modules:
        from tqdm import tqdm

        tqdm.write(message, file=sys.stderr)
    else:
        typer.echo(message, err=True)
