"""`admin-nmt train` on somebody's own text: a recipe beside the run's folder, made once and then kept."""

from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState

from ...system.files import write_text_whole
from ...system.processes import print_once, start_processes
from ..recipe import Recipe
from ..sections import checked
from ..training_run import training_arguments
from ..yaml_files import load_yaml, parse_overrides, set_field
from .own_corpus import OwnCorpus, cleaning_options, columns_and_languages, read_own_corpus
from .own_files import OwnText, guess_languages, run_name
from .own_recipe import Machine, Plan, plan, recipe_text, this_machine

FROM_OPTIONS = ("data", "data.train", "data.valid", "data.test", "data.root", "data.builtin", "data.valid_every")
"""Fields that the options of the files say."""
COLUMNS = "data.train.columns"


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
        if name in FROM_OPTIONS:
            raise ValueError(f"--{name}: the text is named by --source and --target; leave {name} out")
    columns, languages = _columns_and_languages(text, fields)
    output = Path(_text(fields, "output_dir") or f"runs/{run_name(text.train, languages)}").expanduser()
    path = Path(f"{output}.yaml")
    read = partial(
        read_own_corpus,
        text.train,
        text.held_out,
        languages,
        output / "data",
        cache_dir=Path(_text(fields, "data.cache_dir") or output.parent / "cache").expanduser(),
        columns=columns,
    )
    start_processes()
    with PartialState().local_main_process_first():
        if not path.exists():
            chosen = _chosen(fields)
            _check_overrides(text, languages, chosen, list(fields))
            corpus = read(cleaning=_cleaning(languages, chosen))
            _write(path, plan(corpus, languages, str(output), this_machine(), chosen), text, overrides)
        elif PartialState().is_local_main_process:
            _check_same(path, text, columns, languages)
            print_once(f"{path}: the recipe of these files, as it is there")
            if _lacks_held_out(path, output / "data"):
                read(cleaning=(load_yaml(path).get("data") or {}).get("cleaning") or {})
    return path


def _columns_and_languages(text: OwnText, fields: dict[str, Any]) -> tuple[list[str] | None, list[str]]:
    languages = fields.get("languages")
    columns, languages = columns_and_languages(text.train, fields.get(COLUMNS), languages)
    languages = languages or guess_languages(text.train)
    if languages is None:
        raise ValueError(
            f"{text.train}: the names do not say which languages these are; add the codes of source and target, such "
            "as --languages en de"
        )
    checked(Recipe, {"output_dir": "x", "data": {"builtin": "phrasebook"}, "languages": languages}, "", ["languages"])
    return columns, languages


def _text(fields: dict[str, Any], name: str) -> str | None:
    """A path that the command line gives."""
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"--{name} {value!r}: is no text; write it in quotes: --{name} '\"{value}\"'")
    return value


def _cleaning(languages: list[str], chosen: dict[str, Any]) -> dict[str, Any]:
    """`data.cleaning` of the recipe, with what the command line says of it."""
    values: dict[str, Any] = {"cleaning": cleaning_options(languages)}
    for name, value in chosen.items():
        if name.split(".")[:2] == ["data", "cleaning"]:
            set_field(values, name.removeprefix("data."), value)
    return values["cleaning"] or {}


def _chosen(fields: dict[str, Any]) -> dict[str, Any]:
    """Values that the command line gives for the recipe's choices."""
    return {name: value for name, value in fields.items() if name not in ("output_dir", "languages", COLUMNS)}


def _check_overrides(text: OwnText, languages: list[str], chosen: dict[str, Any], overrides: list[str]) -> None:
    """Refuse a wrong field before anything is read, in a recipe of text like this on a machine like this."""
    splits = {split: {"source": "x", "target": "y"} for split in ("valid", "test")}
    corpus = OwnCorpus(text.train, 1000, 1000, 50.0, splits)
    values = plan(corpus, languages, "x", Machine(None, 10**12, 1, False), chosen).values
    training_arguments(checked(Recipe, values, "the recipe", overrides))


def _check_same(path: Path, text: OwnText, columns: list[str] | None, languages: list[str]) -> None:
    """Check that a recipe is one of these files.

    Raises:
        ValueError: it is of others.
    """
    values = load_yaml(path)
    data = values.get("data") or {}
    own = {"train": text.train, **text.held_out}
    expected = {split: files.fields() | ({"columns": columns} if columns else {}) for split, files in own.items()}
    if values.get("languages") != languages or any(data.get(split) != part for split, part in expected.items()):
        raise ValueError(
            f"{path}: is there already, the recipe of other files or languages; name another folder with --output, or "
            "remove it"
        )


def _lacks_held_out(path: Path, folder: Path) -> bool:
    """Tell whether pairs held out for a recipe are gone, as with the folder of its run; they can be had again."""
    data = load_yaml(path).get("data") or {}
    parts = [data.get(split) for split in ("valid", "test")]
    files = [Path(str(part.get(side))) for part in parts if isinstance(part, dict) for side in ("source", "target")]
    return any(file.parent == folder and not file.exists() for file in files)


def _write(path: Path, made: Plan, text: OwnText, overrides: list[str]) -> None:
    checked(Recipe, made.values, path)
    write_text_whole(path, recipe_text(made, ["train", *text.options(), *overrides], str(path)))
    source, target = made.values["languages"]
    print_once(f"{path}: a recipe for {text.train}, {source} to {target}, with the reasons of what it says")
    for line in made.lines:
        print_once(f"      {line}")
