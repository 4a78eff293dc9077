"""A grid: one YAML file that names a recipe, cells that change some of its fields, and seeds."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from recipe import Recipe, RecipeLoader, load_recipe

Overrides = Mapping[str, Any]


@dataclass
class Grid:
    """What a grid file holds.

    Args:
        title: of the tables and plots.
        recipe: the recipe that all runs share; in the file relative to the file's folder.
        output_dir: folder of the runs, the tables and the plots.
        cells: what each cell changes: `section.field` names with their values; its data are those of the others.
        seeds: of every cell.
        overrides: what all cells change.
        note: a paragraph below the table.
    """

    title: str
    recipe: Path
    output_dir: Path
    cells: dict[str, Overrides]
    seeds: list[int]
    overrides: Overrides = field(default_factory=dict)
    note: str = ""

    def runs(self) -> Iterator["Run"]:
        """All runs, seed after seed, so that an early look at the tables shows every cell."""
        for seed in self.seeds:
            for cell in self.cells:
                yield Run(self, cell, seed)


@dataclass
class Run:
    """One cell with one seed."""

    grid: Grid
    cell: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.cell}-seed{self.seed}"

    @property
    def folder(self) -> Path:
        return self.grid.output_dir / self.name

    @property
    def arguments(self) -> list[str]:
        """What follows the recipe on the command line of train.py; the last of two values for a field holds."""
        own = {"training.seed": self.seed, "output_dir": str(self.folder)}
        values = dict(self.grid.overrides) | dict(self.grid.cells[self.cell]) | own
        return [text for name, value in values.items() for text in (f"--{name}", json.dumps(value))]

    def recipe(self) -> Recipe:
        """Raises: ValueError: the cell names a field that does not exist, or one that contradicts another."""
        return load_recipe(self.grid.recipe, self.arguments)

    def results(self) -> dict[str, Any] | None:
        """results.json of the run, None as long as it has not ended."""
        path = self.folder / "results.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def load_grid(path: str | Path, overrides: list[str] | None = None) -> Grid:
    """Read a grid; `overrides` is a list such as ["--data.root", "data", "--output_dir", "runs/x"] that wins over all.

    Raises:
        ValueError: naming the file and what is wrong in it; every run's recipe is checked.
    """
    path = Path(path)
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), RecipeLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: is not valid YAML: {error}") from error
    known, needed = {f.name for f in fields(Grid)}, {"title", "recipe", "output_dir", "cells", "seeds"}
    if not isinstance(values, dict) or set(values) - known or needed - set(values):
        raise ValueError(f"{path}: a grid has the fields {', '.join(sorted(known))}, and not all of {sorted(needed)}")
    given = _pairs(overrides or [])
    values["recipe"] = path.parent / values["recipe"]
    values["output_dir"] = Path(given.pop("output_dir", values["output_dir"]))
    values["overrides"] = values.get("overrides", {})
    for name, cell in values["cells"].items():
        data = sorted(key for key in cell if key.split(".")[0] in ("data", "tokenizer", "languages"))
        if data:
            raise ValueError(f"{path}: cell {name} changes {data[0]}; cells compare models on the same data")
        values["cells"][name] = cell | given
    values["overrides"] |= given
    grid = Grid(**values)
    for run in grid.runs():
        try:
            run.recipe()
        except ValueError as error:
            raise ValueError(f"{path}: cell {run.cell}: {error}") from error
    return grid


def _pairs(overrides: list[str]) -> dict[str, Any]:
    """{"data.root": "data"} of ["--data.root", "data"]."""
    names, texts = overrides[::2], overrides[1::2]
    if len(names) != len(texts) or any(not name.startswith("--") for name in names):
        raise ValueError(f"{' '.join(overrides)}: write --section.field value")
    return {name[2:]: yaml.load(text, RecipeLoader) for name, text in zip(names, texts, strict=True)}
