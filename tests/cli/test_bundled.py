"""Recipes and grids that come with the package: where they are found, and that the wheel has them."""

import configparser
import shutil
from pathlib import Path

import pytest
from toy import error, invoke

from admin_nmt.cli import bundled as module
from admin_nmt.cli.bundled import KINDS, bundled, find_file, summary
from admin_nmt.experiments.grids import load_grid
from admin_nmt.runs.recipe import load_recipe

ROOT = Path(__file__).parents[2]


def test_names_and_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phrasebook").mkdir()  # a folder of that name is no recipe
    assert find_file("phrasebook", "recipes").resolve() == ROOT / "training" / "recipes" / "phrasebook.yaml"
    (tmp_path / "mine").write_text("data: {}")
    assert find_file("mine", "recipes") == Path("mine")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        find_file("nowhere.yaml", "recipes")
    for kind, named in (("recipes", "recipe"), ("grids", "multi30k-depths")):
        with pytest.raises(ValueError, match=f"nothing: .*{named}"):
            find_file("nothing", kind)


def test_recipes_grids_and_launch_configurations_are_listed_and_printed():
    listed = invoke("recipe", "--list").stdout.splitlines()
    names = [name for kind in KINDS for name in bundled(kind)]
    assert [line.split()[0] for line in listed if line and not line.endswith(":")] == names
    assert len(set(names)) == len(names), "a name stands for two files"
    assert all(len(summary(path)) > 20 for kind in KINDS for path in bundled(kind).values())
    for name, path in (("phrasebook", "recipes/phrasebook.yaml"), ("ddp", "accelerate/ddp.yaml")):
        assert invoke("recipe", name).stdout == (ROOT / "training" / path).read_text()
    assert "nothing" in error("recipe", "nothing")
    assert all(load_recipe(path).training.report_to in (None, "none") for path in bundled("recipes").values())


def test_an_installed_package_has_its_own(tmp_path, monkeypatch):
    """As a wheel lays them out, where a grid still finds its recipe."""
    for kind in KINDS:
        shutil.copytree(ROOT / "training" / kind, tmp_path / "admin_nmt" / kind)
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "admin_nmt")
    assert find_file("phrasebook", "recipes") == tmp_path / "admin_nmt" / "recipes" / "phrasebook.yaml"
    grid = load_grid(find_file("multi30k-long", "grids"))
    assert grid.recipe.resolve() == tmp_path / "admin_nmt" / "recipes" / "multi30k-en-de-short.yaml"


def test_the_wheel_has_every_room_and_every_file():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    rooms = {path.parent for path in (ROOT / "admin_nmt").rglob("__init__.py")}
    names = {".".join(path.relative_to(ROOT).parts) for path in rooms} | {f"admin_nmt.{kind}" for kind in KINDS}
    assert set(setup["options"]["packages"].split()) == names
    others = {path.suffix for path in (ROOT / "admin_nmt").rglob("*") if path.is_file()} - {".py", ".pyc"}
    patterns = setup["options.package_data"]["*"].split(", ")
    assert others | {".yaml"} == {Path(pattern).suffix for pattern in patterns}
