"""The claim of a run's folder: what it leaves there, what it refuses, and what becomes of damaged files."""

from pathlib import Path

import pytest
import yaml
from datasets import Dataset
from filelock import FileLock

from admin_nmt.hub.run_folder import PAIRS, RECIPE
from admin_nmt.runs.claim import claim_data, claim_folder
from admin_nmt.runs.recipe import Recipe, load_recipe

RECIPE_FILE = Path(__file__).parents[2] / "training" / "recipes" / "multi30k-en-de-short.yaml"


def recipe_in(folder: Path, *overrides: str) -> Recipe:
    return load_recipe(RECIPE_FILE, ["--output_dir", str(folder), *overrides])


def leave_a_checkpoint(folder: Path) -> None:
    (folder / "checkpoint-1").mkdir()
    (folder / "checkpoint-1" / "trainer_state.json").write_text("{}")
    (folder / "checkpoint-1" / "config.json").write_text('{"cut o')  # nothing reads it here


@pytest.mark.parametrize("content", ["", "a: [", "output_dir: x", b"\xff"])
def test_a_damaged_recipe_matters_once_there_is_a_checkpoint(tmp_path, content):
    """Before that a first attempt that failed, or a file cut off by a full disk, stops nobody."""
    recipe, claimed = recipe_in(tmp_path), tmp_path / RECIPE
    damaged = content.encode() if isinstance(content, str) else content
    claimed.write_bytes(damaged)
    (tmp_path / f".{RECIPE}-0123456789abcdef").write_text("half")  # where a process was killed
    claim_folder(recipe)
    assert {path.name for path in tmp_path.iterdir()} == {"lock", RECIPE}
    assert yaml.safe_load(claimed.read_text()) == recipe.as_dict()
    leave_a_checkpoint(tmp_path)
    claim_folder(recipe)
    claimed.write_bytes(damaged)
    with pytest.raises(ValueError, match=rf"{RECIPE}.*delete it"):
        claim_folder(recipe)
    claimed.unlink()
    claim_folder(recipe)
    assert yaml.safe_load(claimed.read_text()) == recipe.as_dict()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_damaged_facts_of_the_pairs_are_named(tmp_path, content):
    leave_a_checkpoint(tmp_path)
    pairs = Dataset.from_dict({"input_ids": [[1]], "labels": [[2]]})
    claim_data(tmp_path, pairs)
    claim_data(tmp_path, pairs)
    (tmp_path / PAIRS).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{PAIRS}.*delete it"):
        claim_data(tmp_path, pairs)
    (tmp_path / PAIRS).unlink()
    claim_data(tmp_path, pairs)
    with pytest.raises(ValueError, match="other pairs"):
        claim_data(tmp_path, Dataset.from_dict({"input_ids": [[1]], "labels": [[3]]}))


def test_a_claim_names_what_a_checkpoint_cannot_change(tmp_path):
    claim_folder(recipe_in(tmp_path))
    leave_a_checkpoint(tmp_path)
    for moved in (["--data.cache_dir", "x"], ["--training.max_steps", "77"], ["--evaluation.num_beams", "2"]):
        claim_folder(recipe_in(tmp_path, *moved))
    fixed = {"training.max_tokens": "99", "training.seed": "5", "training.adam_beta2": "0.9", "data.max_length": "9"}
    for field, value in (fixed | {"model.variant": "pre_ln"}).items():
        with pytest.raises(ValueError, match=f"were trained with {field} .*{value}.*: choose another output_dir"):
            claim_folder(recipe_in(tmp_path, f"--{field}", value))


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    with FileLock(tmp_path / "lock"), pytest.raises(ValueError, match="another process trains there"):
        claim_folder(recipe_in(tmp_path))
