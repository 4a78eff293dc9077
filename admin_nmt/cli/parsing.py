"""Extensions of typer: help in panels, dataclasses of options, and the fields of a recipe as options.

Help is plain text: rich would join the lines of the examples and read `[demo]` as markup.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

OVERRIDE = re.compile(r"--([\w-]+)(\.[\w-]+)*(=.*)?", re.DOTALL)
LANGUAGE = re.compile(r"[\w-]+")


def with_dashes(name: str) -> str:
    """Spell an option or a command with dashes: `--num_beams` is `--num-beams`."""
    return name.replace("_", "-")


def write_panels(formatter: Any, rows: Iterable[tuple[str, tuple[str, str]]]) -> None:
    """Write rows, each with the title of its panel, below these titles in the order of their first rows."""
    panels: dict[str, list[tuple[str, str]]] = {}
    for title, row in rows:
        panels.setdefault(title, []).append(row)
    for title, inside in panels.items():
        with formatter.section(title):
            formatter.write_dl(inside)


class Group(TyperGroup):
    """Commands, listed in their panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, groups last, each with the first sentence of its help."""
        width = max(map(len, self.commands))
        ordered: list[Any] = sorted(self.commands.values(), key=lambda one: isinstance(one, TyperGroup))
        rows = ((f"{one.name:{width}}", one.get_short_help_str(formatter.width - width - 6)) for one in ordered)
        write_panels(formatter, zip((one.rich_help_panel or "Commands" for one in ordered), rows, strict=True))


class Command(TyperCommand):
    """A command whose options are listed in their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        titles = {"argument": "Arguments", "option": "Options"}
        rows = []
        for one in self.get_params(ctx):
            if row := one.get_help_record(ctx):
                panel = getattr(one, "rich_help_panel", None)  # which older releases' --help lacks
                rows.append((panel or titles[one.param_type_name], row))
        write_panels(formatter, rows)


class WithOverrides(Command):
    """A command on a recipe or grid, whose fields are options too: --section.field VALUE, --output_dir VALUE.

    --languages also takes two codes, source and target.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the fields in `ctx.meta["overrides"]`, as `load_recipe` takes them, and parse the rest."""
        rest, overrides, given = [], [], iter(args)
        for text in given:
            if not self.is_field(text):
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

    def is_field(self, text: str) -> bool:
        """Tell whether a word of the command line names a field of a recipe, and no option of the command."""
        found = OVERRIDE.fullmatch(text)
        own = {"--help"}.union(*(one.opts for one in self.params))
        if found is None or with_dashes(f"--{found[1]}") in own:
            return False
        if found[2]:
            return True

        from ..runs.recipe import Recipe  # seconds, which a field of a section does not take

        return found[1].replace("-", "_") in Recipe.model_fields


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """Expand each dataclass among a command's parameters into its fields, since typer takes no dataclasses.

    A field is annotated as a parameter of a command is. The first line of the class's docstring is the title of its
    panel in the help; a ValueError of its `__post_init__` is a usage error.
    """
    hints = get_type_hints(command, include_extras=True)
    kinds: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        parameters += _fields(kinds[name]) if name in kinds else [parameter.replace(kind=Parameter.KEYWORD_ONLY)]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in kinds.items():
            values = {one.name: given.pop(one.name) for one in fields(kind)}
            try:
                given[name] = kind(**values)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from error
        command(**given)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _fields(kind: type) -> Iterator[Parameter]:
    """The parameters that stand for the fields of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    for one in fields(kind):
        annotation, option = get_args(hints[one.name])
        option = copy(option)
        option.rich_help_panel = (kind.__doc__ or "Options").splitlines()[0].rstrip(".")
        yield Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=Annotated[annotation, option])
