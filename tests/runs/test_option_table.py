"""The table of all options: complete, and in the repository as the command prints it."""

import re
from pathlib import Path

from typer.testing import CliRunner

from admin_nmt.cli.app import app
from admin_nmt.runs.option_table import NOT_SET_BY_HAND, option_page
from admin_nmt.runs.recipe import Recipe
from admin_nmt.trainer.arguments import AdminTrainingArguments

PAGE = Path(__file__).parents[2] / "training" / "options.md"


def test_the_page_in_the_repository_is_what_the_command_prints():
    printed = CliRunner().invoke(app, ["recipe", "--options"])
    assert printed.exit_code == 0, printed.output
    assert printed.stdout == PAGE.read_text(encoding="utf-8"), "admin-nmt recipe --options > training/options.md"


def test_every_field_of_a_recipe_has_a_row():
    """Of transformers' hundred fields only some."""
    lines = [re.split(r" \| ", line.strip("| ")) for line in option_page().splitlines() if line.startswith("| `")]
    rows = {name.strip("`"): rest for name, *rest in lines}
    expected = {"output_dir", "languages", "data.root", "data.cleaning.count", "data.test.more_references"}
    for name in ("tokenizer", "model", "evaluation", "card"):
        expected |= {f"{name}.{field}" for field in Recipe.model_fields[name].annotation.model_fields}
    expected |= {f"training.{field}" for field in ("early_stopping_patience", *AdminTrainingArguments.__annotations__)}
    expected -= {f"model.{field}" for field in NOT_SET_BY_HAND}
    assert expected <= rows.keys(), sorted(expected - rows.keys())
    assert all(len(cells) == 3 and len(cells[2]) > 5 for cells in rows.values())
    assert rows["training.learning_rate"][:2] == ["number from 0", "0.0007"]
