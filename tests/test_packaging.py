"""What people get besides a checkout: source distribution, wheel, types, citation, list of changes."""

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

import admin_nmt

ROOT = Path(__file__).parents[1]
FOLDERS = ("admin_nmt", "model_cards", "tests", "training")
FILES = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "README.md", "constraints.txt")
FILES += ("pyproject.toml", "setup.cfg")


def setup_cfg() -> ConfigParser:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup


def build(what: str, source: Path, output: Path) -> Path:
    """The one file that setuptools' build_sdist or build_wheel makes of a source tree."""
    program = f"from setuptools.build_meta import {what}; {what}({str(output)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=source, check=True, capture_output=True)
    (found,) = output.iterdir()
    return found


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """The source distribution of this checkout, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    for name in FILES:
        shutil.copy(ROOT / name, folder / "source")
    with tarfile.open(build("build_sdist", folder / "source", folder / "built")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@pytest.mark.slow  # builds it
def test_the_source_distribution_is_the_checkout(sdist):
    def files(folder: Path) -> set[str]:
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        return {path for path in found if ".egg-info/" not in path}

    assert files(sdist) - files(sdist.parents[1] / "source") == {"PKG-INFO"}
    assert files(sdist.parents[1] / "source") <= files(sdist)


@pytest.fixture(scope="module")
def site(sdist, tmp_path_factory) -> Path:
    """The wheel of the source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build("build_wheel", sdist, folder / "built")) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


@pytest.mark.slow
def test_the_wheel_alone_trains_the_quickstart(site, tmp_path):
    """In an empty folder outside any checkout: the package is the wheel's, and it brings all that training needs."""
    steps = [text for name in ("max", "eval", "save", "logging") for text in (f"--training.{name}_steps", "5")]
    environment = {"PATH": "", "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "admin_nmt", "train", "phrasebook", *steps, "--data.cache_dir", "cache"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    run = tmp_path / "runs" / "phrasebook"
    assert '"commit": null' in (run / "results.json").read_text()
    assert all((run / name / "README.md").exists() for name in ("standard", "final"))


def test_type_checkers_see_every_public_name():
    """They cannot follow the lazy imports, and take a name that they do not see for `Any`."""
    tree = ast.parse((ROOT / "admin_nmt" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == admin_nmt._MODULES

    assert set(seen) == set(admin_nmt.__all__)


def test_the_citation_says_what_stands_elsewhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    package = setup_cfg()["metadata"]
    assert (citation["title"], citation["version"]) == (package["name"], package["version"])
    assert citation["license"] == package["license"]
    urls = re.findall(r"= (https://arxiv\.org/abs/\S+)", package["project_urls"])
    assert urls == [paper["url"] for paper in citation["references"]]
    template = (ROOT / "admin_nmt" / "hub" / "card_templates" / "papers.jinja").read_text(encoding="utf-8")
    for paper in citation["references"]:
        assert f"title = {{{paper['title']}}}" in template and paper["url"] in template
    assert f"[{package['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
