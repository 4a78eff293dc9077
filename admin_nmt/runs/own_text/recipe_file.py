"""`admin-nmt train` on somebody's own text: a recipe beside the run's folder, made once and then kept."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from accelerate import PartialState

from ...data.cleaning import CleaningOptions
from ...system.files import write_text_whole
from ...system.processes import print_once, start_processes
from ..recipe import DataSection, Recipe, check_languages, load_recipe
from ..sections import checked
from ..training_run import training_arguments
from ..yaml_files import parse_overrides, set_field
from .files import OwnFiles, OwnText, guess_languages, run_name
from .plan import OVERRIDDEN, Machine, Plan, plan, this_machine
from .summary import CorpusSummary, cleaning_options, columns_and_languages, summarize

COLUMNS = "data.train.columns"
REFUSED = dict.fromkeys(
    ("data", "data.train", "data.valid", "data.test", "data.root", "data.builtin", "data.valid_every"),
    "the text is named by --source and --target; leave this out",
) | {
    "training": "give its fields one by one, such as --training.max_steps 1000",
    "training.num_train_epochs": "the length of a run on your own text is training.max_steps; give that",
}
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

    def summary(data: DataSection) -> CorpusSummary:
        cleaning = CleaningOptions(**{} if data.cleaning is None else data.cleaning.given())
        cache = Path(data.cache_dir)
        return summarize(
            text.train, text.held_out, languages, output / "data", cleaning, cache_dir=cache, columns=columns
        )

    start_processes()
    with PartialState().local_main_process_first():
        if not path.exists():
            chosen = {name: value for name, value in fields.items() if name not in ("output_dir", "languages", COLUMNS)}
            data = _data(text.train, columns, languages, output, chosen)
            _check_fields(data, languages, output, chosen)
            made = plan(summary(data), data, languages, str(output), this_machine(), chosen)
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
                summary(recipe.data)
    return path


def _columns_and_languages(text: OwnText, fields: dict[str, Any]) -> tuple[list[str] | None, list[str]]:
    given = fields.get("languages")
    try:
        if given is not None:
            check_languages(given)
    except ValueError as error:
        raise ValueError(f"--languages: {error}") from error
    columns, languages = columns_and_languages(text.train, fields.get(COLUMNS), given)
    languages = languages or guess_languages(text.train)
    if languages is None:
        raise ValueError(
            f"{text.train}: the names do not say which languages these are; add the codes of source and target, such "
            "as --languages en de"
        )
    return columns, languages


def _data(
    files: OwnFiles, columns: list[str] | None, languages: list[str], output: Path, chosen: dict[str, Any]
) -> DataSection:
    """Files, cache and cleaning of a new recipe; the cache is beside the run."""
    train = files.fields() | ({"columns": columns} if columns else {})
    data = {"train": train, "cache_dir": str(output.parent / "cache"), "cleaning": cleaning_options(languages)}
    values = {"output_dir": str(output), "languages": languages, "data": data}
    for name, value in chosen.items():
        if name.startswith("data."):
            set_field(values, name, value)
    return checked(Recipe, values, "the recipe", chosen).data


def _check_fields(data: DataSection, languages: list[str], output: Path, chosen: dict[str, Any]) -> None:
    """Refuse a wrong field before anything is read, by the plan for another text and another machine."""
    held_out = {split: {"source": "x", "target": "y"} for split in ("valid", "test")}
    made = plan(
        CorpusSummary(1000, 1000, 50.0, held_out), data, languages, str(output), Machine(None, 10**12, 1, False), chosen
    )
    training_arguments(checked(Recipe, made.values, "the recipe", chosen))


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


def recipe_text(made: Plan, command: Sequence[str], path: str) -> str:
    """The recipe as YAML, with a comment behind each field that has a reason."""
    header = [
        f"Written by: admin-nmt {shlex.join(command)}",
        "Change what you like, and train it with another folder for its run:",
        f"  admin-nmt train {shlex.quote(path)} --output_dir runs/another",
    ]
    lines = [*(f"# {' '.join(line.splitlines())}" for line in header), ""]
    for section, fields in made.values.items():
        if isinstance(fields, Mapping):
            reasons = {name: _reason(made.why, f"{section}.{name}") for name in fields}
            lines += [f"{section}:", *(f"  {_line(name, value, reasons[name])}" for name, value in fields.items())]
        else:
            lines.append(_line(section, fields, made.why.get(section)))
    return "".join(f"{line}\n" for line in lines)


def _reason(why: Mapping[str, str], name: str) -> str | None:
    """Reason of a field, of one inside it, or of its section, which the command line may give."""
    inner = (text for known, text in why.items() if known.startswith(f"{name}."))
    return why.get(name) or next(inner, None) or (OVERRIDDEN if why.get(name.split(".")[0]) == OVERRIDDEN else None)


def _line(name: str, value: Any, why: str | None) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    text = text.removesuffix("...\n").strip()
    return f"{name}: {text}" + (f"  # {why}" if why else "")
