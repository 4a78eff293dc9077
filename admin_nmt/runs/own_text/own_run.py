"""`admin-nmt train` on somebody's own text: a recipe beside the run's folder, made once and then kept."""

from pathlib import Path
from typing import Any

from accelerate import PartialState

from ...system.files import write_text_whole
from ...system.processes import print_once, start_processes
from ..recipe import Recipe, load_recipe
from ..sections import checked
from ..training_run import training_arguments
from ..yaml_files import parse_overrides
from .own_corpus import OwnCorpus, columns_and_languages, read_own_corpus
from .own_files import OwnText, guess_languages, run_name
from .own_recipe import Machine, plan, recipe_text, this_machine

COLUMNS = "data.train.columns"
REFUSED = dict.fromkeys(
    ("data", "data.train", "data.valid", "data.test", "data.root", "data.builtin", "data.valid_every"),
    "the text is named by --source and --target; leave this out",
) | {"training.num_train_epochs": "the length of a run on your own text is training.max_steps; give that"}
"""Fields that the options of the files or the plan say, each with what to do."""


def recipe_for(text: OwnText, overrides: list[str]) -> Path:
    """The recipe of somebody's own text, written where there is none; every process calls it.

    It is OUTPUT.yaml, beside the folder of the run, where it is never overwritten. Held-out pairs are in OUTPUT/data.

    Args:
        text: the files.
        overrides: fields of the recipe, as `load_recipe` takes them; `output_dir` is OUTPUT.

    Raises:
        ValueError: in one sentence, why one cannot train on the files, or what else is wrong.
    """
    fields = dict(parse_overrides(overrides))
    for name in fields:
        if name in REFUSED:
            raise ValueError(f"--{name}: {REFUSED[name]}")
    columns, languages = _columns_and_languages(text, fields)
    given = fields.get("output_dir") or f"runs/{run_name(text.train, languages)}"
    if not isinstance(given, str):
        raise ValueError(f"--output_dir {given!r}: is no text; write it in quotes: --output_dir '\"{given}\"'")
    output = Path(given).expanduser()
    path = Path(f"{output}.yaml")

    def read(recipe: Recipe) -> OwnCorpus:
        cleaning = {} if recipe.data.cleaning is None else recipe.data.cleaning.given()
        cache = Path(recipe.data.cache_dir)
        return read_own_corpus(
            text.train, text.held_out, languages, output / "data", cleaning, cache_dir=cache, columns=columns
        )

    start_processes()
    with PartialState().local_main_process_first():
        if not path.exists():
            chosen = {name: value for name, value in fields.items() if name not in ("output_dir", "languages", COLUMNS)}
            corpus = read(_before_reading(text, languages, output, chosen, list(fields)))
            made = plan(corpus, languages, str(output), this_machine(), chosen)
            write_text_whole(path, recipe_text(made, ["train", *text.options(), *overrides], str(path)))
            source, target = languages
            print_once(f"{path}: a recipe for {text.train}, {source} to {target}, with the reasons of what it says")
            for line in made.lines:
                print_once(f"      {line}")
        elif PartialState().is_local_main_process:
            recipe = load_recipe(path)
            _check_same(path, recipe, text, columns, languages)
            print_once(f"{path}: the recipe of these files, as it is there")
            held_out = [part.get(side) for part in _splits(recipe).values() for side in ("source", "target")]
            ours = [Path(file) for file in held_out if isinstance(file, str) and Path(file).parent == output / "data"]
            if not all(file.exists() for file in ours):  # they are gone with the folder of the run
                read(recipe)
    return path


def _columns_and_languages(text: OwnText, fields: dict[str, Any]) -> tuple[list[str] | None, list[str]]:
    columns, languages = columns_and_languages(text.train, fields.get(COLUMNS), fields.get("languages"))
    languages = languages or guess_languages(text.train)
    if languages is None:
        raise ValueError(
            f"{text.train}: the names do not say which languages these are; add the codes of source and target, such "
            "as --languages en de"
        )
    checked(Recipe, {"output_dir": "x", "data": {"builtin": "phrasebook"}, "languages": languages}, "", ["languages"])
    return columns, languages


def _before_reading(
    text: OwnText, languages: list[str], output: Path, chosen: dict[str, Any], overrides: list[str]
) -> Recipe:
    """The recipe of a text like this on a machine like this: a wrong field is refused before anything is read."""
    splits: dict[str, dict[str, Any]] = {split: {"source": "x", "target": "y"} for split in ("valid", "test")}
    corpus = OwnCorpus(text.train, 1000, 1000, 50.0, splits, cache_dir=str(output.parent / "cache"))
    values = plan(corpus, languages, str(output), Machine(None, 10**12, 1, False), chosen).values
    recipe = checked(Recipe, values, "the recipe", overrides)
    training_arguments(recipe)
    return recipe


def _splits(recipe: Recipe) -> dict[str, Any]:
    """The corpora that a recipe names, one a split as they were written here; others are left out."""
    given = recipe.data.given()
    return {split: given[split] for split in ("train", "valid", "test") if isinstance(given.get(split), dict)}


def _check_same(path: Path, recipe: Recipe, text: OwnText, columns: list[str] | None, languages: list[str]) -> None:
    """Check that a recipe is one of these files.

    Raises:
        ValueError: it is of others.
    """
    own, found = {"train": text.train, **text.held_out}, _splits(recipe)
    expected = {split: files.fields() | ({"columns": columns} if columns else {}) for split, files in own.items()}
    if recipe.languages != languages or any(found.get(split) != part for split, part in expected.items()):
        raise ValueError(
            f"{path}: is there already, the recipe of other files or languages; name another folder with --output, or "
            "remove it"
        )
