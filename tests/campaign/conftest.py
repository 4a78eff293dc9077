"""Seeds and folders of the campaign."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import campaign
import pytest


def pytest_report_header() -> str:
    return f"campaign: ADMIN_NMT_CAMPAIGN_SEED={campaign.SEED} ADMIN_NMT_CAMPAIGN_SCALE={campaign.SCALE:g}"


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> Random:
    """The dice of a trial, which fall alike under the same seed."""
    print(f"ADMIN_NMT_CAMPAIGN_SEED={campaign.SEED} pytest -m campaign {request.node.nodeid!r}")  # shown when it fails
    return Random(f"{campaign.SEED} {request.node.name}")


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An empty folder, which stays if the trial fails."""
    failed = request.session.testsfailed
    yield tmp_path
    if request.session.testsfailed == failed:
        shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe and its text, to be copied."""
    return campaign.new_inputs(tmp_path_factory.mktemp("campaign") / "inputs")


@pytest.fixture(scope="session")
def finished(inputs: Path) -> Path:
    """The same folder after a straight run: `run/final`, `run/standard` and all else that it leaves."""
    folder = inputs.with_name("finished")
    shutil.copytree(inputs, folder)
    campaign.assert_done(campaign.run("train", "recipe.yaml", folder=folder))
    return folder
