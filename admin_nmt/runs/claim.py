"""A run's own folder: one process trains there at a time, and continues only from checkpoints of the same settings."""

import reprlib
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from accelerate import PartialState
from filelock import BaseFileLock, FileLock, Timeout

from ..files import write_text_whole
from ..trainer.checkpoints import complete_checkpoints
from .recipe import RESUMED, Recipe, RecipeLoader, differences


def claim_folder(recipe: Recipe) -> None:
    """Leave the recipe in its output folder; refuse to go on from checkpoints of other data, model or optimizer.

    The folder is this process's until it ends, however it ends.

    Raises:
        ValueError: naming the first field that differs, or another process trains there.
    """
    folder = Path(recipe.output_dir)
    path, values = folder / "recipe.yaml", recipe.as_dict()
    earlier = _read_claim(path)
    if earlier is not None and complete_checkpoints(folder):
        for name, (old, new) in differences(earlier, values, RESUMED).items():
            raise ValueError(
                f"{folder}: its checkpoints were trained with {name} {reprlib.repr(old)}, and the recipe has "
                f"{reprlib.repr(new)}: choose another output_dir"
            )
    PartialState().wait_for_everyone()  # all have read it
    if PartialState().is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        _lock(folder)
        if earlier != values:
            write_text_whole(path, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    PartialState().wait_for_everyone()


def _lock(folder: Path) -> None:
    """Held until the process dies: nobody releases it."""
    try:
        _lock_of(folder).acquire(blocking=False)
    except Timeout as error:
        raise ValueError(f"{folder}: another process trains there; wait, or choose another output_dir") from error


@cache
def _lock_of(folder: Path) -> BaseFileLock:
    """One for the whole process: a lock that nobody refers to is released."""
    return FileLock(folder / "lock")


def _read_claim(path: Path) -> dict[str, Any] | None:
    """The recipe that a run left, perhaps of another version, None if there is none or only a part of it."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), RecipeLoader)
    except (FileNotFoundError, yaml.YAMLError):
        return None
    needed = {name for name, field in Recipe.model_fields.items() if field.is_required()}
    return values if isinstance(values, dict) and needed <= set(values) else None
