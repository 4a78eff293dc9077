"""`admin-nmt publish --space`: a Space that brings what it needs, and nothing where publish refuses."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from finished_run import REPO
from huggingface_hub import snapshot_download
from huggingface_hub.repocard import SpaceCard

from admin_nmt.demo import space

pytest.importorskip("gradio", reason="needs Gradio, the extra demo")

SPACE = f"spaces:{REPO}"


def test_a_space_with_what_it_needs(make_run, hub, publish, tmp_path):
    assert not publish(make_run(), "--repo", REPO, "--space")
    assert list(hub.repos) == [REPO, f"{REPO}-admin", SPACE] and len(hub.repos[SPACE].commits) == 2
    folder = Path(snapshot_download(REPO, repo_type="space", local_dir=tmp_path / "space"))
    card = SpaceCard.load(folder / "README.md").data
    assert (card.sdk, card.app_file, card.models, card.license) == ("gradio", "app.py", [REPO], "cc-by-4.0")
    assert card.title == "English to German" and card.sdk_version and card.python_version
    requirements = (folder / "requirements.txt").read_text().splitlines()
    assert any(re.fullmatch(r"transformers==[\d.]+", line) for line in requirements)
    assert {"ctranslate2", "sentencex"} <= {re.split(r"\W", line)[0] for line in requirements}
    assert not any("gradio" in line or "pytest" in line for line in requirements)


@pytest.mark.slow
def test_the_package_of_a_space_alone_builds_the_page(make_run, tmp_path):
    space.write_space(tmp_path, make_run() / "standard", REPO)
    app = (tmp_path / "app.py").read_text().split("\npage = ")[0]
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{app}\nimport admin_nmt; print(admin_nmt.__file__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "admin_nmt" / "__init__.py")


def test_a_private_space_of_a_model_without_standard_class(make_run, hub):
    urls = list(space.publish_with_space(make_run(variant="dlcl_pre_ln"), REPO, private=True))
    assert list(hub.repos) == [REPO, SPACE] and all(repo.private for repo in hub.repos.values())
    assert urls[-1].startswith(f"{hub.url}/spaces/{REPO}/commit/")


def test_without_gradio(make_run, hub, publish, monkeypatch):
    def version(name: str) -> str:
        raise space.PackageNotFoundError(name)

    monkeypatch.setattr(space, "version", version)
    assert 'pip install "admin_nmt[demo]"' in publish(make_run(), "--repo", REPO, "--space")
    assert not hub.requests
