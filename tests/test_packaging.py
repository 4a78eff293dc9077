"""What people get besides a checkout: source distribution, types, citation, list of changes."""

import ast
import re
import shutil
import subprocess
import sys
import tarfile
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

import admin_nmt

ROOT = Path(__file__).parents[1]
FOLDERS = ("admin_nmt", "model_cards", "tests", "training")
FILES = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "README.md", "constraints.txt")
FILES += ("pyproject.toml", "setup.cfg")


@pytest.mark.slow  # builds it
def test_the_source_distribution_is_the_checkout(tmp_path):
    source = tmp_path / "source"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    for name in FILES:
        shutil.copy(ROOT / name, source)
    program = f"from setuptools.build_meta import build_sdist; build_sdist({str(tmp_path / 'built')!r})"
    subprocess.run([sys.executable, "-c", program], cwd=source, check=True, capture_output=True)
    (built,) = (tmp_path / "built").iterdir()
    with tarfile.open(built) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (sdist,) = (tmp_path / "unpacked").iterdir()

    def files(folder: Path) -> set[str]:
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        return {path for path in found if ".egg-info/" not in path}

    assert files(sdist) - files(source) == {"PKG-INFO"}
    assert files(source) <= files(sdist)


def test_type_checkers_see_every_public_name():
    """They cannot follow the lazy imports, and take a name that they do not see for `Any`."""
    tree = ast.parse((ROOT / "admin_nmt" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == admin_nmt._MODULES

    assert set(seen) == set(admin_nmt.__all__)


def test_the_citation_says_what_stands_elsewhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    package = setup["metadata"]
    assert (citation["title"], citation["version"]) == (package["name"], package["version"])
    assert citation["license"] == package["license"]
    urls = re.findall(r"= (https://arxiv\.org/abs/\S+)", package["project_urls"])
    assert urls == [paper["url"] for paper in citation["references"]]
    template = (ROOT / "admin_nmt" / "hub" / "card_templates" / "papers.jinja").read_text(encoding="utf-8")
    for paper in citation["references"]:
        assert f"title = {{{paper['title']}}}" in template and paper["url"] in template
    assert f"[{package['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
