"""A run's own folder: one process trains there at a time, and continues only from checkpoints of the same settings."""

import json
import reprlib
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from accelerate import PartialState
from datasets import Dataset
from filelock import BaseFileLock, FileLock, Timeout

from ..data.tokenizing import digest_of
from ..hub.run_folder import PAIRS, RECIPE, REHEARSAL, RESULTS, STANDARD
from ..system.files import write_text_whole
from ..trainer.checkpoints import complete_checkpoints
from .recipe import Recipe
from .yaml_files import load_yaml

FIXED_ON_RESUME = (
    "optimizer", "learning_rate", "adam_beta1", "adam_beta2", "adam_epsilon", "weight_decay",
    "max_tokens", "seed", "data_seed",
)  # fmt: skip
"""Fields of `training` that must not change when a run resumes, because a checkpoint's optimizer keeps its kind and
settings, and its position in an epoch is one in the plan of batches that the last three determine."""

UNFINISHED = (REHEARSAL, *(f".{name}-*" for name in (RECIPE, PAIRS, RESULTS, STANDARD)))
"""Files and folders that a killed run was about to give their names."""

DAMAGED = (
    "it says what the checkpoints beside it were trained with: restore it, choose another output_dir, or delete it to "
    "go on without this check"
)

PATHS = ("data.root", "data.cache_dir")
"""Fields that may change: they say where files are, not what is in them."""


def claim_folder(recipe: Recipe) -> None:
    """Leave the recipe in its output folder; refuse to go on from checkpoints of other data, model or optimizer.

    The folder is this process's until it ends, however it ends.

    Raises:
        ValueError: naming the first field that differs, or the file that is damaged, or another process trains there.
    """
    folder = Path(recipe.output_dir)
    path, values = folder / RECIPE, recipe.as_dict()
    if path.exists() and complete_checkpoints(folder):
        for name, (old, new) in differences(_read_claim(path), values, is_fixed_on_resume).items():
            raise ValueError(
                f"{folder}: its checkpoints were trained with {name} {reprlib.repr(old)}, and the recipe has "
                f"{reprlib.repr(new)}: choose another output_dir"
            )
    PartialState().wait_for_everyone()  # all have read it
    if PartialState().is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        _lock(folder)
        for left in [left for pattern in UNFINISHED for left in folder.glob(pattern)]:
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
        if not path.exists() or path.read_bytes() != text.encode():
            write_text_whole(path, text)
    PartialState().wait_for_everyone()


def claim_data(folder: Path, pairs: Dataset) -> None:
    """Leave the digest of the training pairs; refuse to go on from checkpoints of others under the same names.

    Args:
        pairs: the tokenised ones.

    Raises:
        ValueError: the files that the recipe names have changed, or the digest of the earlier ones is damaged.
    """
    path = folder / PAIRS
    facts = {"pairs": len(pairs), "digest": digest_of(pairs)}
    if complete_checkpoints(folder) and path.exists():
        try:
            earlier = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: is not JSON; {DAMAGED}") from error
        if earlier != facts:
            raise ValueError(
                f"{folder}: its checkpoints were trained on other pairs than its data files give now: bring these back "
                "as they were, or choose another output_dir"
            )
    PartialState().wait_for_everyone()  # all have read it
    if PartialState().is_main_process:
        write_text_whole(path, json.dumps(facts))


def is_fixed_on_resume(field: str) -> bool:
    """Tell whether a field such as `model.d_model` must not change when a run resumes."""
    section, _, name = field.partition(".")
    return name in FIXED_ON_RESUME if section == "training" else section in ("data", "tokenizer", "model")


def differences(
    earlier: Mapping[str, Any], now: Mapping[str, Any], counts: Callable[[str], bool]
) -> dict[str, tuple[Any, Any]]:
    """Fields of two recipes that differ, such as `model.d_model`, with both values; without those of `PATHS`.

    Args:
        earlier: what `Recipe.as_dict` gave, perhaps of another version of this library.
        now: likewise.
        counts: whether a field does.
    """
    differing = {}
    for section in ("data", "tokenizer", "model", "training", "evaluation"):
        known = Recipe.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
        old, new = earlier.get(section) or {}, now.get(section) or {}
        for name in dict.fromkeys((*old, *new)):
            default, field = known[name].default if name in known else None, f"{section}.{name}"
            pair = old.get(name, default), new.get(name, default)
            if pair[0] != pair[1] and field not in PATHS and counts(field):
                differing[field] = pair
    return differing


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


def _read_claim(path: Path) -> dict[str, Any]:
    """The recipe that a run has left, perhaps of another version.

    Raises:
        ValueError: it is damaged.
    """
    try:
        values = load_yaml(path)
        for name, field in Recipe.model_fields.items():
            if field.is_required() and name not in values:
                raise ValueError(f"{path}: has no {name}")
        return values
    except ValueError as error:
        raise ValueError(f"{error}; {DAMAGED}") from error
