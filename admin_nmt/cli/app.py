"""The command line `admin-nmt`: thin commands around functions of the library.

Results, and the steps of train and prepare, go to stdout, bars and other messages to stderr. Exit codes: 0 done,
1 failed (one line on stderr says why), 2 wrong usage, 130 interrupted, 141 nobody reads stdout any more, 143 a training
that SIGTERM asked to stop has written its checkpoint.

The commands import the library when they run, so that help and usage errors come at once.
"""

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..system.errors import describe, user_errors
from . import decoding_commands, model_commands, report_commands, run_commands
from .benchmark_commands import benchmark
from .demo_command import demo
from .options import WithOverrides, quiet_imports
from .translate_command import translate


def tell(message: str) -> None:
    """Write a message to stderr, on a line of its own even where a progress bar is being drawn."""
    if "tqdm" in sys.modules:
        from tqdm import tqdm

        tqdm.write(message, file=sys.stderr)
    else:
        typer.echo(message, err=True)


class OneLineErrors(TyperGroup):
    """Turns what the user can mend into one line on stderr; anything else is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # Python would complain about the rest of its buffer, which nobody wants, while it shuts down.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(141) from None
        except KeyboardInterrupt:
            tell("interrupted; the same command starts again, a training from its last checkpoint")
            raise typer.Exit(130) from None
        except user_errors() as error:
            tell(f"error: {describe(error)}")
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def settings(show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Very deep translation models: train, translate, score, compare, fold, export, publish."""
    if show_version:
        print(version("admin_nmt"))
        raise typer.Exit()
    quiet_imports()


ON_RECIPES: list[Callable[..., None]] = [
    run_commands.train,
    run_commands.prepare,
    run_commands.memory,
    run_commands.experiment,
]
OTHERS: list[Callable[..., None]] = [
    run_commands.recipe,
    translate,
    decoding_commands.score,
    decoding_commands.evaluate,
    decoding_commands.synthesize,
    demo,
    report_commands.compare,
    report_commands.plot,
    report_commands.analyse_depth,
    model_commands.info,
    model_commands.profile,
    model_commands.fold,
    model_commands.export,
    model_commands.average,
    model_commands.convert_fairseq,
    model_commands.card,
    model_commands.publish,
]
for command in ON_RECIPES:
    app.command(cls=WithOverrides)(command)
for command in OTHERS:
    app.command()(command)
app.add_typer(benchmark, name="benchmark")


def main() -> None:
    """Run the command line."""
    app(prog_name="admin-nmt")


if __name__ == "__main__":
    main()
