"""Options that commands share, checks of what they get, and what they write.

A wrong option must be refused at once: nothing here loads torch, transformers or datasets before a command runs.
"""

import gc
import logging
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from ..metrics.languages import language_code
from ..system.files import json_text, whole_file

SECTIONS = ("output_dir", "data", "tokenizer", "model", "training", "evaluation", "languages", "card")  # of a recipe
OVERRIDE = re.compile(rf"--({'|'.join(SECTIONS)}|output-dir)(\.[\w-]+)*(=.*)?", re.DOTALL)


LANGUAGE = re.compile(r"[\w-]+")


class WithOverrides(TyperCommand):
    """A command on a recipe or grid, whose fields are options too: --section.field VALUE, --output_dir VALUE.

    --languages also takes two codes, source and target.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the fields in `ctx.meta["overrides"]`, as `load_recipe` takes them, and parse the rest."""
        rest, overrides, given = [], [], iter(args)
        for text in given:
            if not OVERRIDE.fullmatch(text):
                rest.append(text)
                continue
            name, equals, value = text.partition("=")
            name = f"--{name[2:].replace('-', '_')}"
            if not equals and (value := next(given, "--")).startswith("--"):
                raise typer.BadParameter("needs a value", ctx=ctx, param_hint=f"'{name}'")
            if name == "--languages" and not equals and LANGUAGE.fullmatch(value):
                target = next(given, "--")
                if target.startswith("--"):
                    raise typer.BadParameter("needs two codes, source and target", ctx=ctx, param_hint=f"'{name}'")
                value = f'["{value}", "{target}"]'  # in quotes: no, Norwegian, is false in YAML
            overrides += [name, value]
        ctx.meta["overrides"] = overrides
        return super().parse_args(ctx, rest)


def check_output(path: Path | None) -> Path | None:
    """A file that can be written, told before hours of work and not after."""
    if path is None:
        return None
    folder = path.absolute().parent
    if (path.exists() and not path.is_file()) or folder == Path("/dev"):
        raise typer.BadParameter(f"{path} is no ordinary file; name one, or leave the option out")
    if not folder.is_dir():
        raise typer.BadParameter(f"{path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise typer.BadParameter(f"{path}: {folder} may not be written; choose another folder")
    return path


def check_language(code: str | None) -> str | None:
    """A code, not a name, which the scores' tokenisers would not know and silently treat as another language."""
    try:
        return None if code is None else language_code(code)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def check_repository(name: str | None) -> str | None:
    """A name that the Hub can have, told before the work."""
    from ..hub import repositories as hub

    try:
        if name is not None:
            hub.check_repository(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return name


def check_text(text: str | None) -> str | None:
    """Text of the command line that its bytes are; Python reads others as half surrogate pairs."""
    try:
        (text or "").encode()
    except UnicodeEncodeError as error:
        raise typer.BadParameter(f"{text!a} is not valid UTF-8") from error
    return text


def check_finite(value: float | None) -> float | None:
    """Of the numbers that Python reads, nan and inf are none that an option has a use for."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no finite number")
    return value


def check_positive(value: float) -> float:
    """A number above 0."""
    check_finite(value)
    if value <= 0:
        raise typer.BadParameter(f"{value} is not above 0")
    return value


def check_device(name: str | None) -> None:
    """Refuse a device that is not there; commands call it when they run, since only torch knows."""
    from ..system.devices import checked_device

    try:
        checked_device(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--device'") from error


Model = Annotated[str, typer.Argument(help="Folder or Hub repository of a model.", show_default=False)]
NewFolder = Annotated[Path, typer.Option(help="Folder to write; must not exist, or be empty.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.", show_default=False)]
RecipeOrNone = Annotated[
    str | None,
    typer.Argument(
        metavar="RECIPE", help="YAML file, or the name of a recipe that comes with the package.", show_default=False
    ),
]
RecipeFile = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="YAML file, or the name of a recipe that comes with the package.", show_default=False
    ),
]
Source = Annotated[str, typer.Option(help="Source sentences (.gz too), or a .tsv, .jsonl or .parquet file of pairs.")]
Target = Annotated[str | None, typer.Option(help="Their translations, line by line, if SOURCE holds no pairs.")]
NumBeams = Annotated[int, typer.Option(min=1, help="Beam size; 1 is greedy search.")]
OwnNumBeams = Annotated[
    int | None,
    typer.Option(min=1, help="Beam size; 1 is greedy search. By default that of the model, or 5 where it has none."),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        callback=check_finite, help="Scores are divided by length to this power; by default what the model has."
    ),
]
BatchTokens = Annotated[int, typer.Option(min=1, help="Batch size in source tokens, padding included.")]
Chunk = Annotated[int, typer.Option(min=1, help="Lines that are sorted, translated and saved together.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; by default a GPU if there is one.")]
Backend = Annotated[Literal["torch", "ctranslate2"], typer.Option(help="What runs the model.")]
ComputeType = Annotated[str | None, typer.Option(help="For CTranslate2: int8, float16, …; by default float32.")]
OnCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="Let the workers of a Dask cluster do it: its tcp://HOST:PORT, or its scheduler's file."
    ),
]

Dtype = Annotated[
    str | None,
    typer.Option(help="For torch: float32 or bfloat16; by default bfloat16 where the CPU has it and it is faster."),
]


def quiet_imports() -> None:
    """transformers imports torchao wherever it is installed, and that warns of kernels for other processors."""
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)


def quiet() -> None:
    """Load transformers with our classes, and leave progress to the commands' own bars and warnings unsaid."""
    quiet_imports()
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


@contextmanager
def loading() -> Iterator[None]:
    """Around imports and the loading of a model, of which nothing becomes garbage.

    Python's search for reference cycles would go over the millions of objects that they make, several times before they
    are all there and again at the end of the program: a fifth of the time from launch to translation.
    """
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.freeze()  # what is there by now is left out of later searches
            gc.enable()


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
    """Tell something on stderr."""
    typer.echo(message, err=True)
