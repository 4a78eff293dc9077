"""What a run leaves in its folder of its recipe and pairs, and what becomes of a run when these files are damaged."""

from pathlib import Path

import pytest
import yaml
from datasets import Dataset

from admin_nmt.hub.run_folder import PAIRS, RECIPE
from admin_nmt.runs.claim import claim_data, claim_folder
from admin_nmt.runs.recipe import load_recipe

RECIPE_FILE = Path(__file__).parents[2] / "training" / "recipes" / "multi30k-en-de-short.yaml"


@pytest.fixture
def recipe(tmp_path):
    """Of a run that has left a checkpoint."""
    recipe = load_recipe(RECIPE_FILE, ["--output_dir", str(tmp_path)])
    claim_folder(recipe)
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-1" / "config.json").write_text('{"cut o')  # nothing reads it here
    return recipe


@pytest.mark.parametrize("content", ["", "a: [", "- 1", "output_dir: x", "\0", b"\xff"])
def test_a_damaged_recipe_is_named_before_anything_is_prepared(recipe, tmp_path, content):
    claim_folder(recipe)
    whole = (tmp_path / RECIPE).read_bytes()
    (tmp_path / RECIPE).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ValueError, match=rf"{RECIPE}.*delete it"):
        claim_folder(recipe)
    (tmp_path / RECIPE).write_bytes(whole)
    claim_folder(recipe)
    (tmp_path / RECIPE).unlink()
    claim_folder(recipe)
    assert yaml.safe_load((tmp_path / RECIPE).read_text()) == recipe.as_dict()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_damaged_facts_of_the_pairs_are_named(recipe, tmp_path, content):
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
