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
from typer.core import TyperGroup

from ..system.errors import describe, user_errors
from . import decoding_commands, model_commands, report_commands, run_commands
from .options import WithOverrides, quiet_imports
from .translate_command import translate


def tell(message: str) -> None:
    """Write a message to stderr, on a line of its own even where a progress bar is being drawn."""
    if "tqdm" in sys.modules:
        from tqdm import tqdm

        tqdm.write(message, file=sys.stderr)
    else:
        typer.echo(message, err=True)


class Panels(TyperGroup):
    """Commands whose overview lists them below the titles of their panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the titles and, below each, its commands with the first sentence of their help."""
        panels: dict[str, list[Any]] = {}
        ordered: list[Any] = sorted(self.commands.values(), key=lambda one: isinstance(one, TyperGroup))  # groups last
        for command in ordered:
            panels.setdefault(command.rich_help_panel, []).append(command)
        width = max(map(len, self.commands))
        for title, commands in panels.items():
            with formatter.section(title):
                limit = formatter.width - width - 6
                formatter.write_dl([(f"{one.name:{width}}", one.get_short_help_str(limit)) for one in commands])


class OneLineErrors(Panels):
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


def with_dashes(name: str) -> str:
    """Spell an option or a command with dashes: `--num_beams` is `--num-beams`."""
    return name.replace("_", "-")


app = typer.Typer(
    cls=OneLineErrors,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich joins the lines of examples, and reads [demo] as markup
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": with_dashes},
)


@app.callback(invoke_without_command=True)
def settings(show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Very deep translation models: train, translate, score, compare, export, publish."""
    if show_version:
        print(version("admin_nmt"))
        raise typer.Exit()
    quiet_imports()


USE, DATA, RESEARCH = "Train and use a model", "Data and recipes", "Research"

app.command(cls=WithOverrides, rich_help_panel=USE)(run_commands.train)
app.command(rich_help_panel=USE)(translate)
app.command(rich_help_panel=USE)(decoding_commands.evaluate)
app.command(rich_help_panel=USE)(decoding_commands.score)
app.command(rich_help_panel=USE)(decoding_commands.demo)
app.command(rich_help_panel=USE)(model_commands.publish)
app.command(rich_help_panel=DATA)(run_commands.recipe)
app.command(cls=WithOverrides, rich_help_panel=DATA)(run_commands.prepare)
app.command(cls=WithOverrides, rich_help_panel=DATA)(run_commands.memory)
app.command(rich_help_panel=DATA)(decoding_commands.synthesize)
app.command(cls=WithOverrides, rich_help_panel=RESEARCH)(run_commands.experiment)
app.command(rich_help_panel=RESEARCH)(report_commands.compare)
app.command(rich_help_panel=RESEARCH)(report_commands.plot)
app.add_typer(model_commands.group, name="model", rich_help_panel=USE)
app.add_typer(report_commands.analyse, name="analyse", rich_help_panel=RESEARCH)


def main() -> None:
    """Run the command line."""
    app(prog_name="admin-nmt")


if __name__ == "__main__":
    main()
