"""What the scripts share on the command line."""

import sys
from argparse import ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from transformers import HfArgumentParser

from admin_nmt.cli.commands import USER_ERRORS, describe
from admin_nmt.trainer.divergence import DivergedError

Arguments = TypeVar("Arguments")
ANEW = "the same command starts anew"  # of scripts that keep nothing of an interrupted run


class HelpFormatter(RawDescriptionHelpFormatter, ArgumentDefaultsHelpFormatter):
    """Keeps the lines of the description, which hold examples."""


def parse(kind: type[Arguments], description: str | None) -> Arguments:
    """The arguments of a script; its first one, the model or the run, needs no name."""
    argv = sys.argv[1:]
    if argv and not argv[0].startswith("-"):
        argv = [f"--{fields(kind)[0].name}", *argv]
    (arguments,) = HfArgumentParser(
        kind, description=description, formatter_class=HelpFormatter
    ).parse_args_into_dataclasses(argv)
    return arguments


def run(
    main: Callable[[], None], again: str = "the same command starts again, a training from its last checkpoint"
) -> None:
    """Run a script; what the user can mend is one line and exit code 1.

    Args:
        main: the script.
        again: what holds after Ctrl-C.
    """
    try:
        main()
    except (*USER_ERRORS, DivergedError) as error:
        sys.exit(f"error: {describe(error)}")
    except KeyboardInterrupt:
        sys.exit(f"interrupted; {again}")
