"""The table of all options: complete, and in the repository as the command prints it."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from admin_nmt.cli.app import app
from admin_nmt.cli.output import show_markdown
from admin_nmt.runs.option_table import NOT_SET_BY_HAND, meanings, option_page
from admin_nmt.runs.recipe import Recipe
from admin_nmt.trainer.arguments import AdminTrainingArguments

PAGE = Path(__file__).parents[2] / "training" / "options.md"


def rows() -> dict[str, list[str]]:
    """Type, default and meaning of each option."""
    lines = [re.split(r" \| ", line.strip("| ")) for line in option_page().splitlines() if line.startswith("| `")]
    return {name.strip("`"): rest for name, *rest in lines}


def test_the_page_in_the_repository_is_what_the_command_prints():
    printed = CliRunner().invoke(app, ["recipe", "--options"])
    assert printed.exit_code == 0, printed.output
    assert printed.stdout == PAGE.read_text(encoding="utf-8"), "admin-nmt recipe --options > training/options.md"


def test_every_field_of_a_recipe_has_a_row():
    """Of transformers' hundred fields only some."""
    expected = {"output_dir", "languages", "data.root", "data.cleaning.count", "data.test.more_references"}
    for name in ("tokenizer", "model", "evaluation", "card"):
        expected |= {f"{name}.{field}" for field in Recipe.model_fields[name].annotation.model_fields}
    expected |= {f"training.{field}" for field in ("early_stopping_patience", *AdminTrainingArguments.__annotations__)}
    expected -= {f"model.{field}" for field in NOT_SET_BY_HAND}
    found = rows()
    assert expected <= found.keys(), sorted(expected - found.keys())
    assert all(len(cells) == 3 and len(cells[2]) > 5 for cells in found.values())


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("training.max_tokens", ["whole number from 1", "4096"]),
        ("training.learning_rate", ["number from 0", "0.0007; in transformers 5e-05"]),
        ("training.adam_beta1", ["number from 0 below 1", "0.9"]),
        ("training.eval_strategy", ["`no`, `steps`, `epoch`", "`no`"]),
        ("data.train.source", ["text or list of texts", "required"]),
        ("languages", ["list of texts", "[en, de]"]),
        ("data.cleaning.max_ratio", ["number", "1.5"]),
    ],
)
def test_types_and_defaults(name, cells):
    assert rows()[name][:2] == cells


def test_meanings_of_a_docstring():
    def mix(paint: str, litres: float) -> None:
        """Mix.

        Args:
            paint: what is mixed: a name,
                or several.
            litres: how much; None for all.

        Raises:
            ValueError: never.
        """

    assert meanings(mix) == {"paint": "what is mixed: a name, or several.", "litres": "how much; None for all."}
    assert meanings(len) == {}


def test_a_terminal_gets_columns(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show_markdown("# Title\n\n| option | type |\n|---|---|\n| `a` | text |\n")
    shown = capsys.readouterr().out
    assert "option" in shown and "|" not in shown and "`" not in shown
