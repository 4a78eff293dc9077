"""The command line `admin-nmt`: thin commands around functions of the library.

Results, and the progress of train and prepare, go to stdout, bars and other messages to stderr. Exit codes: 0 done,
1 failed (one line on stderr says why), 2 wrong usage, 130 interrupted, 141 stdout was closed, 143 a training that got
SIGTERM has written its checkpoint.

The commands import the library when they run, so that help and usage errors come at once.
"""

import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ..system.errors import describe, user_errors
from . import decoding_commands, model_commands, report_commands, run_commands
from .output import say
from .parsing import Command, Group, WithOverrides, with_dashes
from .translate_command import translate


class OneLineErrors(Group):
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
            say("interrupted; the same command starts again, a training from its last checkpoint")
            raise typer.Exit(130) from None
        except user_errors() as error:
            say(f"error: {describe(error)}")
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": with_dashes},
)


@app.callback(invoke_without_command=True)
def settings(show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Very deep translation models: train, translate, score, compare, export, publish."""
    if show_version:
        print(version("admin_nmt"))
        raise typer.Exit()


USE, DATA, RESEARCH = "Train and use a model", "Data and recipes", "Research"

app.command(cls=WithOverrides, rich_help_panel=USE)(run_commands.train)
app.command(cls=Command, rich_help_panel=USE)(translate)
app.command(cls=Command, rich_help_panel=USE)(decoding_commands.evaluate)
app.command(cls=Command, rich_help_panel=USE)(decoding_commands.score)
app.command(cls=Command, rich_help_panel=USE)(decoding_commands.demo)
app.command(cls=Command, rich_help_panel=USE)(model_commands.publish)
app.command(cls=Command, rich_help_panel=DATA)(run_commands.recipe)
app.command(cls=WithOverrides, rich_help_panel=DATA)(run_commands.prepare)
app.command(cls=WithOverrides, rich_help_panel=DATA)(run_commands.memory)
app.command(cls=Command, rich_help_panel=DATA)(decoding_commands.synthesize)
app.command(cls=WithOverrides, rich_help_panel=RESEARCH)(run_commands.experiment)
app.command(cls=Command, rich_help_panel=RESEARCH)(report_commands.compare)
app.command(cls=Command, rich_help_panel=RESEARCH)(report_commands.plot)
app.add_typer(model_commands.group, name="model", rich_help_panel=USE)
app.add_typer(report_commands.analyse, name="analyse", rich_help_panel=RESEARCH)


def main() -> None:
    """Run the command line.

    A stream that the shell has closed, as `<&-` does, becomes the null device: Python has None for it, and the next
    file that is opened would take its number and get what libraries print.
    """
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open until the end)
    app(prog_name="admin-nmt")


if __name__ == "__main__":
    main()
