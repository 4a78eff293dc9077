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
# A comment that ignores an error which is none would be reported itself: the names below are no `Any`.
TYPED_SCRIPT = """
from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments, Translator

config = AdminConfig(variant="admin", encoder_layers=12, decoder_layers=2, d_model=128, vocab_size=300)
model = AdminForConditionalGeneration(config)
trainer = AdminTrainer(model, AdminTrainingArguments("runs/mine", max_tokens=1024))
trainer.train(resume_from_checkpoint=True)
lines: list[str] = Translator.from_pretrained("out").translate(["Two kites cost ten euros."])
Translator.from_pretrained("out").translate(1)  # type: ignore[arg-type]
AdminTrainer(model, "runs/mine")  # type: ignore[arg-type]
"""
# Other libraries are taken as they are: to read them costs half a minute, and their types are not ours to test.
MYPY = """
[mypy]
strict = True
[mypy-accelerate.*,datasets.*,huggingface_hub.*,numpy.*,pyarrow.*,safetensors.*,tokenizers.*,torch.*,transformers.*]
follow_imports = skip
ignore_missing_imports = True
"""


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


def test_the_source_distribution_is_the_checkout(sdist):
    def files(folder: Path) -> set[str]:
        found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        return {path for path in found if ".egg-info/" not in path}

    assert files(sdist) - files(sdist.parents[1] / "source") == {"PKG-INFO"}
    assert files(sdist.parents[1] / "source") <= files(sdist)


@pytest.mark.slow  # mypy goes over the libraries
def test_a_typed_script_checks_against_the_wheel_of_the_source_distribution(sdist, tmp_path):
    with zipfile.ZipFile(build("build_wheel", sdist, tmp_path / "wheel")) as wheel:
        wheel.extractall(tmp_path / "site")
        assert {"admin_nmt/data/phrasebook.tsv.bz2", "admin_nmt/metrics/languages.tsv"} <= set(wheel.namelist())
    (tmp_path / "script.py").write_text(TYPED_SCRIPT, encoding="utf-8")
    (tmp_path / "mypy.ini").write_text(MYPY, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", "script.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_type_checkers_see_every_public_name():
    """They cannot follow the lazy imports, and take a name that they do not see for `Any`."""
    tree = ast.parse((ROOT / "admin_nmt" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == admin_nmt._MODULES


def test_citation():
    """What the format 1.2.0 demands, and facts that stand elsewhere too."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    package = setup_cfg()["metadata"]
    assert citation["cff-version"] == "1.2.0" and citation["message"] and citation["type"] == "software"
    assert (citation["title"], citation["version"]) == (package["name"], package["version"])
    assert citation["license"] == package["license"]
    papers = citation["references"]
    for work in (citation, *papers):
        assert work["title"] and work["authors"]
        assert all({"family-names", "given-names"} <= set(author) or "name" in author for author in work["authors"])
    urls = re.findall(r"= (https://arxiv\.org/abs/\S+)", package["project_urls"])
    assert urls == [paper["url"] for paper in papers]
    template = (ROOT / "admin_nmt" / "hub" / "card_templates" / "papers.jinja").read_text(encoding="utf-8")
    assert all(f"title = {{{paper['title']}}}" in template and paper["url"] in template for paper in papers)


def test_changelog():
    """The form of Keep a Changelog: what is not released first, then each version, down to the first one."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    assert f"[{setup_cfg()['metadata']['version']}]" in text
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds
