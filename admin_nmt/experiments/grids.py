"""A grid: one YAML file that names a recipe, systems that change some of its fields, and seeds."""

import json
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os.path import expanduser
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from ..hub.run_folder import Results, results_or_none
from ..runs.claim import differences
from ..runs.recipe import Recipe, load_recipe
from ..runs.sections import Section, checked
from ..runs.yaml_files import load_yaml, parse_overrides

Overrides = Mapping[str, Any]
WITHOUT_RESULT = re.compile(
    r"training\.(log|report_to|run_name|disable_tqdm|dataloader_|activation_checkpointing|ddp_|fsdp|push_to_hub|hub_)"
)
"""The beginnings of fields that may change while a grid runs: the scores of a run do not depend on them."""

SEED = "training.seed"
PLAIN_NAME = re.compile(r"[^/\\:\x00-\x1f]+")  # the folder of a run is named after its system


@dataclass
class Grid:
    """Systems and seeds to train with one recipe.

    Args:
        title: of the tables and plots.
        recipe: the recipe that all runs share; in the file relative to the file's folder.
        output_dir: folder of the runs, the tables and the plots.
        systems: what each system changes: `section.field` names with their values; validation and test set, languages
            and tokenizer are the same for all.
        seeds: of every system.
        overrides: what all systems change.
        note: a paragraph below the table.
    """

    title: str
    recipe: Path
    output_dir: Path
    systems: dict[str, Overrides]
    seeds: list[int]
    overrides: Overrides = field(default_factory=dict)
    note: str = ""

    def runs(self) -> Iterator["Run"]:
        """All runs, seed after seed, so that an early look at the tables shows every system."""
        for seed in self.seeds:
            for system in self.systems:
                yield Run(self, system, seed)

    def texts(self, runs: Iterable["Run"]) -> list[Recipe]:
        """A recipe for each training text of the grid's first system and of `runs`; that of the first system leads."""
        recipes = [next(self.runs()).recipe(), *(run.recipe() for run in runs)]
        return list({json.dumps(recipe.as_dict()["data"], sort_keys=True): recipe for recipe in recipes}.values())


@dataclass
class Run:
    """One system with one seed."""

    grid: Grid
    system: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.system}-seed{self.seed}"

    @property
    def folder(self) -> Path:
        return self.grid.output_dir / self.name

    @property
    def arguments(self) -> list[str]:
        """Arguments behind the recipe on the command line of `train`; the last of two values for a field holds."""
        own = {SEED: self.seed, "output_dir": str(self.folder)}
        values = dict(self.grid.overrides) | dict(self.grid.systems[self.system]) | own
        return [text for name, value in values.items() for text in (f"--{name}", json.dumps(value))]

    def recipe(self) -> Recipe:
        """Raises: ValueError: the system names a field that does not exist, or one that contradicts another."""
        return load_recipe(self.grid.recipe, self.arguments)

    def results(self) -> Results | None:
        """results.json of the run, None as long as it has not ended.

        Raises:
            ValueError: it is of other settings than the grid has now.
        """

        def counts(field: str) -> bool:
            return not WITHOUT_RESULT.match(field)

        results = results_or_none(self.folder)
        if results is not None:
            earlier = results.recipe.model_dump(exclude_unset=True)
            for name, (old, new) in differences(earlier, self.recipe().as_dict(), counts).items():
                raise ValueError(
                    f"{self.folder} holds a run with {name} {reprlib.repr(old)}, and the grid has {reprlib.repr(new)}: "
                    "delete it, or give another --output_dir"
                )
        return results


class GridFile(Section):
    """The fields of [`Grid`] as a file has them."""

    title: str
    recipe: str
    output_dir: str
    systems: dict[str, dict[str, Any] | None] = Field(min_length=1)
    seeds: list[int] = Field(min_length=1)
    overrides: dict[str, Any] | None = None
    note: str = ""

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"holds {seeds}; name each once")
        return seeds

    @model_validator(mode="after")
    def _check_systems(self) -> Self:
        for name, system in self.systems.items():
            if not PLAIN_NAME.fullmatch(name):
                raise ValueError(f"system {name!r} cannot be the name of a folder; leave out / \\ : and line breaks")
            fields = sorted(key for key in system or {} if key.split(".")[0] in ("data", "tokenizer", "languages"))
            if fields := [key for key in fields if key != "data.train"]:
                raise ValueError(f"system {name} changes {fields[0]}; all have the same, but for data.train")
            if SEED in (system or {}) or "output_dir" in (system or {}):
                raise ValueError(f"system {name} has a seed or a folder of its own; the grid has seeds and output_dir")
        return self


def load_grid(path: str | Path, overrides: list[str] | None = None, called: str | None = None) -> Grid:
    """Read a grid; `overrides` is a list such as ["--data.root", "data", "--output_dir", "runs/x"] that wins over all.

    Args:
        called: what errors call the grid, if not by its path.

    Raises:
        ValueError: naming the file and what is wrong in it; every run's recipe is checked.
    """
    path, called, given = Path(path), called or str(path), dict(parse_overrides(overrides or []))
    if SEED in given:
        raise ValueError(f"--{SEED}: every run of a grid has a seed of its own; choose among them by --seed")
    file = checked(GridFile, load_yaml(path, called), called)
    folder = expanduser(given.pop("output_dir", file.output_dir))
    grid = Grid(
        title=file.title,
        recipe=path.parent / file.recipe,
        output_dir=Path(folder),
        systems={name: (system or {}) | given for name, system in file.systems.items()},  # without: the recipe as it is
        seeds=file.seeds,
        overrides=(file.overrides or {}) | given,
        note=file.note,
    )
    for run in grid.runs():
        try:
            recipe = run.recipe()
            if "data.train" in (file.systems[run.system] or {}) and recipe.tokenizer.path is None:
                raise ValueError("changes data.train; give tokenizer.path, so that all systems have one vocabulary")
        except ValueError as error:
            raise ValueError(f"{called}: system {run.system}: {error}") from error
    return grid
