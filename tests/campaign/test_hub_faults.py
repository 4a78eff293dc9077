"""A Hub that is slow, refuses, fails or drops connections: one line says so; the same command, given again, ends."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from random import Random

import pytest
from campaign import assert_done, assert_told, run, trials
from hub_server import TOKEN, HubServer, client_settings

pytestmark = pytest.mark.campaign

REPO = "user/toy"
PUBLISH = ["publish", "run", "--repo", REPO]
TRANSLATE = ["translate", REPO, "--input", "test.en", "--num-beams", "2"]
PATIENCE = 1.0  # seconds that the client waits for an answer
NEVER = 10**6


def use_hub(url: str, cache: str) -> None:
    """Have this process talk to a Hub of the tests."""
    os.environ.update({"HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1"})
    own = {"HF_HUB_CACHE": cache, "HF_HUB_ETAG_TIMEOUT": PATIENCE, "HF_HUB_DOWNLOAD_TIMEOUT": PATIENCE}
    own = {f"huggingface_hub.constants.{name}": value for name, value in own.items()}
    for name, value in (client_settings(url) | own).items():
        owner, _, attribute = name.rpartition(".")
        setattr(resolve_name(owner), attribute, value)


@pytest.fixture(scope="session")
def publishable(finished: Path) -> Path:
    """A finished run whose cards name the repository."""
    folder = finished.with_name("publishable")
    shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("cache", "checkpoint-*"))
    assert_done(run("model", "card", "run", "--repo", REPO, folder=folder))
    return folder


@pytest.fixture
def work(publishable: Path, folder: Path) -> Path:
    shutil.copytree(publishable, folder / "work")
    return folder / "work"


def files(hub: HubServer, repo: str) -> dict[str, bytes]:
    return {name: file.content for name, file in hub.repos[repo].head.items() if name != ".gitattributes"}


def fail(hub: HubServer, draw: Random, requests: list[str]) -> None:
    hub.failing, hub.status = f".*{draw.choice(requests)}", draw.choice([401, 403, 429, 500, 502, 503])
    print(hub.failing, hub.status)


def drop(hub: HubServer, draw: Random, requests: list[str]) -> None:
    hub.dropping = hub.cutting = draw.choice([1, NEVER])
    print("dropped", hub.dropping)


def slow(hub: HubServer, draw: Random, requests: list[str]) -> None:
    hub.delay = draw.choice([0.05, 1.5 * PATIENCE])
    print("slow", hub.delay)


def mend(hub: HubServer) -> None:
    hub.failing, hub.dropping, hub.cutting, hub.delay = None, 0, 0, 0.0


FAULTS: list[Callable[[HubServer, Random, list[str]], None]] = [fail, fail, drop, slow]
UPLOADING = ["repos/create", "preupload", "objects/batch", "lfs/[0-9a-f]+", f"{REPO}/commit", "admin/commit"]
DOWNLOADING = ["revision", "resolve", "safetensors", "tokenizer.json", "config.json", "api"]


@pytest.mark.parametrize("number", trials(24))
def test_publish(number, work, draw: Random):
    """A repository has its old revision or the whole new one, and both have the new one in the end."""
    with HubServer() as hub:
        setup = partial(use_hub, hub.url, str(work / "hub"))
        FAULTS[number % len(FAULTS)](hub, draw, UPLOADING)
        ended = run(*PUBLISH, folder=work, setup=setup)
        if ended.code:
            assert_told(ended, REPO)
        mend(hub)
        models = {REPO: work / "run" / "standard", f"{REPO}-admin": work / "run" / "final"}
        whole = {repo: {"README.md", "config.json", "model.safetensors", "tokenizer.json"} for repo in models}
        assert all(not files(hub, repo) or whole[repo] <= files(hub, repo).keys() for repo in hub.repos)
        assert_done(run(*PUBLISH, folder=work, setup=setup))
        for repo, model in models.items():
            assert whole[repo] <= files(hub, repo).keys()
            assert all((model / name).read_bytes() == content for name, content in files(hub, repo).items())


@pytest.fixture(scope="session")
def translated(publishable: Path) -> bytes:
    """What the published model says."""
    command = [str(publishable / "run" / "standard") if word == REPO else word for word in TRANSLATE]
    ended = run(*command, folder=publishable)
    assert_done(ended)
    return ended.out


@pytest.fixture
def published(work: Path):
    """A Hub that has the model."""
    with HubServer() as hub:
        assert_done(run(*PUBLISH, folder=work, setup=partial(use_hub, hub.url, str(work / "upload"))))
        yield hub


@pytest.mark.parametrize("number", trials(24))
def test_download(number, work, published, translated, draw: Random):
    setup = partial(use_hub, published.url, str(work / "hub"))
    FAULTS[number % len(FAULTS)](published, draw, DOWNLOADING)
    ended = run(*TRANSLATE, folder=work, setup=setup)
    if ended.code:
        assert_told(ended, REPO)
    else:
        assert ended.out == translated
    mend(published)
    again = run(*TRANSLATE, folder=work, setup=setup)
    assert_done(again)
    assert again.out == translated
