"""A grid: one YAML file that names a recipe, systems that change some of its fields, and seeds."""

import json
import re
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from ..hub.run_folder import Results, results_or_none
from ..runs.claim import differences
from ..runs.recipe import Recipe, load_recipe
from ..runs.sections import Section, checked
from ..runs.yaml_files import load_yaml, parse_overrides

WITHOUT_RESULT = re.compile(
    r"training\.(log|report_to|run_name|disable_tqdm|dataloader_|activation_checkpointing|ddp_|fsdp|push_to_hub|hub_)"
)
"""The beginnings of fields that may change while a grid runs: the scores of a run do not depend on them."""

SEED = "training.seed"
SHARED = ("data", "tokenizer", "languages")  # sections that are the same for all systems, but for data.train
RUN_NAME = re.compile(r"(.+)-seed(\d+)")
PLAIN_NAME = re.compile(r"[^/\\:\x00-\x1f]+")  # the folder of a run is named after its system


Changes = Annotated[dict[str, Any], BeforeValidator(lambda fields: fields or {})]  # `name:` alone changes nothing


class Grid(Section, frozen=False):
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
    recipe: Path = Field(strict=False)
    output_dir: Path = Field(strict=False)
    systems: dict[str, Changes] = Field(min_length=1)
    seeds: list[int] = Field(min_length=1)
    overrides: Changes = Field(default_factory=dict)
    note: str = ""

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"holds {seeds}; name each once")
        return seeds

    @field_validator("systems")
    @classmethod
    def _check_systems(cls, systems: dict[str, Changes]) -> dict[str, Changes]:
        for name, system in systems.items():
            if not PLAIN_NAME.fullmatch(name):
                raise ValueError(f"system {name!r} cannot be the name of a folder; leave out / \\ : and line breaks")
            shared = [key for key in system if key.split(".")[0] in SHARED and key != "data.train"]
            if shared:
                raise ValueError(f"system {name} changes {shared[0]}; all have the same, but for data.train")
            if SEED in system or "output_dir" in system:
                raise ValueError(f"system {name} has a seed or a folder of its own; the grid has seeds and output_dir")
        return systems

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
        """Name of the folder, which [`RUN_NAME`] takes apart."""
        return f"{self.system}-seed{self.seed}"

    @property
    def folder(self) -> Path:
        return self.grid.output_dir / self.name

    @property
    def arguments(self) -> list[str]:
        """Arguments behind the recipe on the command line of `train`; the last of two values for a field holds."""
        own = {SEED: self.seed, "output_dir": str(self.folder)}
        values = self.grid.overrides | self.grid.systems[self.system] | own
        return [text for name, value in values.items() for text in (f"--{name}", json.dumps(value))]

    def recipe(self) -> Recipe:
        """Raises: ValueError: the system names a field that does not exist, or one that contradicts another."""
        return load_recipe(self.grid.recipe, self.arguments)

    def results(self) -> Results | None:
        """results.json of the run, None as long as it has not ended.

        Raises:
            ValueError: it is of other settings than the grid has now.
        """
        if (results := results_or_none(self.folder)) is not None:
            earlier, now = results.recipe.model_dump(exclude_unset=True), self.recipe().as_dict()
            for name, (old, new) in differences(earlier, now, lambda field: not WITHOUT_RESULT.match(field)).items():
                raise ValueError(
                    f"{self.folder} holds a run with {name} {reprlib.repr(old)}, and the grid has {reprlib.repr(new)}: "
                    "delete it, or give another --output_dir"
                )
        return results


def load_grid(path: str | Path, overrides: list[str] | None = None, called: str | None = None) -> Grid:
    """Read a grid; `overrides` is a list such as ["--data.root", "data", "--output_dir", "runs/x"] that wins over all.

    Args:
        called: what errors call the grid, if not by its path.

    Raises:
        ValueError: naming the file and what is wrong in it; every system's recipe is checked.
    """
    path, called, given = Path(path), called or str(path), dict(parse_overrides(overrides or []))
    if SEED in given:
        raise ValueError(f"--{SEED}: every run of a grid has a seed of its own; choose among them by --seed")
    grid = checked(Grid, load_yaml(path, called), called)
    with_text = [name for name, system in grid.systems.items() if "data.train" in system]
    grid.recipe = path.parent / grid.recipe
    grid.output_dir = Path(expanduser(given.pop("output_dir", grid.output_dir)))
    grid.systems = {name: system | given for name, system in grid.systems.items()}
    grid.overrides = grid.overrides | given
    for system in grid.systems:
        try:
            recipe = Run(grid, system, grid.seeds[0]).recipe()
            if system in with_text and recipe.tokenizer.path is None:
                raise ValueError("changes data.train; give tokenizer.path, so that all systems have one vocabulary")
        except ValueError as error:
            raise ValueError(f"{called}: system {system}: {error}") from error
    return grid
