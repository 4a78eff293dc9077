"""Recipes and grids that come with the package: where they are found, and that the wheel has them."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from admin_nmt.cli import bundled as module
from admin_nmt.cli.app import app
from admin_nmt.cli.bundled import KINDS, bundled, find_file, summary
from admin_nmt.experiments.grids import load_grid
from admin_nmt.runs.recipe import load_recipe

ROOT = Path(__file__).parents[2]


def test_names_and_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = find_file("phrasebook", "recipes")
    assert shipped.read_text().startswith("# The built-in phrasebook")
    (tmp_path / "phrasebook").mkdir()  # a folder of that name is no recipe
    assert find_file("phrasebook", "recipes") == shipped
    (tmp_path / "mine").write_text("data: {}")
    assert find_file("mine", "recipes") == Path("mine")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml"):
        find_file("nowhere.yaml", "recipes")
    with pytest.raises(ValueError, match="no recipe of that name comes with the package; `admin-nmt recipe --list`"):
        find_file("nothing", "recipes")
    with pytest.raises(ValueError, match=r"no grid of that name comes with the package; there are .*multi30k-depths, "):
        find_file("nothing", "grids")


def test_an_installed_package_has_its_own(tmp_path, monkeypatch):
    """As a wheel lays them out, where a grid still finds its recipe."""
    for kind in KINDS:
        shutil.copytree(ROOT / "training" / kind, tmp_path / "admin_nmt" / kind)
    monkeypatch.setattr(module, "PACKAGE", tmp_path / "admin_nmt")
    assert find_file("phrasebook", "recipes") == tmp_path / "admin_nmt" / "recipes" / "phrasebook.yaml"
    grid = load_grid(find_file("multi30k-long", "grids"))
    assert grid.recipe.resolve() == tmp_path / "admin_nmt" / "recipes" / "multi30k-en-de-short.yaml"


def test_recipes_grids_and_launch_configurations_are_listed_and_printed():
    listed = CliRunner().invoke(app, ["recipe", "--list"]).stdout.splitlines()
    names = [name for kind in KINDS for name in bundled(kind)]
    assert [line.split()[0] for line in listed if line and not line.endswith(":")] == names
    assert len(set(names)) == len(names), "a name stands for two files"
    assert {"phrasebook", "ddp", "fsdp2", "multi30k-depths"} <= set(names)
    for kind in KINDS:
        assert all(len(summary(path)) > 20 for path in bundled(kind).values())
    for name, path in (("phrasebook", "recipes/phrasebook.yaml"), ("ddp", "accelerate/ddp.yaml")):
        assert CliRunner().invoke(app, ["recipe", name]).stdout == (ROOT / "training" / path).read_text()
    unknown = CliRunner().invoke(app, ["recipe", "nothing"])
    assert unknown.exit_code == 1 and unknown.stderr.startswith("error: nothing: nothing of that name comes with")


def test_the_wheel_has_every_room_and_every_file():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    rooms = {path.parent for path in (ROOT / "admin_nmt").rglob("__init__.py")}
    names = {".".join(path.relative_to(ROOT).parts) for path in rooms} | {f"admin_nmt.{kind}" for kind in KINDS}
    assert set(setup["options"]["packages"].split()) == names
    others = {path.suffix for path in (ROOT / "admin_nmt").rglob("*") if path.is_file()} - {".py", ".pyc"}
    patterns = setup["options.package_data"]["*"].split(", ")
    assert others | {".yaml"} == {Path(pattern).suffix for pattern in patterns}


@pytest.mark.slow
def test_a_wheel_alone_trains_the_quickstart(tmp_path):
    """In an empty folder outside any checkout: the package is the wheel's, and it brings all that training needs."""
    source = tmp_path / "source"
    for name in ("admin_nmt", "training"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", tmp_path / "site", wheel], check=True)
    (tmp_path / "empty").mkdir()
    steps = [text for name in ("max", "eval", "save", "logging") for text in (f"--training.{name}_steps", "5")]
    result = subprocess.run(
        [sys.executable, "-m", "admin_nmt", "train", "phrasebook", *steps, "--data.cache_dir", str(tmp_path / "cache")],
        cwd=tmp_path / "empty",
        env={"PATH": "", "PYTHONPATH": str(tmp_path / "site"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    run = tmp_path / "empty" / "runs" / "phrasebook"
    assert '"commit": null' in (run / "results.json").read_text()
    assert all((run / name / "README.md").exists() for name in ("standard", "final"))


@pytest.mark.parametrize("path", sorted((ROOT / "training" / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_recipe_reports_to_what_may_not_be_installed(path):
    assert load_recipe(path).training.report_to in (None, "none")
