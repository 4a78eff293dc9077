"""`admin-nmt publish`: both models of a run with their cards, or one sentence and nothing sent."""

import json
import os
import subprocess
import sys

import pytest
from finished_run import REPO
from hub_server import HubServer

from admin_nmt.hub.run_folder import FINAL, RESULTS, STANDARD
from admin_nmt.runs.cards import write_card


def files(hub: HubServer, repo_id: str) -> set[str]:
    return set(hub.repos[repo_id].head)


def test_both_models_with_their_cards(make_run, hub):
    """In a process of its own, as a user runs it."""
    run = make_run()
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", "admin_nmt", "publish", run, "--repo", REPO]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr[-3000:]
    assert [line.split("/commit/")[0] for line in result.stdout.splitlines()] == [
        f"{hub.url}/{REPO}",
        f"{hub.url}/{REPO}-admin",
    ]
    card = {"README.md", "curve.png", "omega.png", ".gitattributes"}
    model = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert files(hub, REPO) == card | model | {"export.json"}
    assert files(hub, f"{REPO}-admin") > card | model | {"modeling_admin.py"}
    assert all(len(repo.commits) == 2 for repo in hub.repos.values())


def test_a_model_without_a_standard_one_is_published_alone(make_run, hub, publish):
    assert not publish(make_run(variant="dlcl_pre_ln"), "--repo", REPO, "--private")
    assert list(hub.repos) == [REPO] and hub.repos[REPO].private
    assert "modeling_admin.py" in files(hub, REPO)


def test_an_outdated_card_is_refused_before_anything_is_sent(make_run, hub, publish):
    run = make_run()
    (run / FINAL / "README.md").write_text("# Better than it is\n")
    assert "README.md" in publish(run, "--repo", REPO)
    write_card(run, run / FINAL)
    results = json.loads((run / RESULTS).read_text())
    del results["test"]["bleu"]
    (run / RESULTS).write_text(json.dumps(results))
    assert "test lacks bleu" in publish(run, "--repo", REPO)
    (run / STANDARD / "README.md").unlink()
    assert publish(run, "--repo", REPO).startswith("error: ")
    assert not hub.requests


def test_a_card_of_another_repository_is_refused(make_run, hub, publish):
    run, elsewhere = make_run(), "someone/else"
    assert f"--repo {elsewhere}" in publish(run, "--repo", elsewhere)
    assert not hub.requests
    for name in (STANDARD, FINAL):
        write_card(run, run / name, elsewhere)
    assert not publish(run, "--repo", elsewhere)
    assert list(hub.repos) == [elsewhere, f"{elsewhere}-admin"]


def test_a_folder_that_is_no_run(tmp_path, hub, publish):
    assert FINAL in publish(tmp_path, "--repo", REPO)
    assert not hub.requests


@pytest.mark.parametrize("failing", [f"POST .*{REPO}-admin/commit", "POST /api/repos"])
def test_a_failing_hub(make_run, hub, publish, failing):
    """One line; a repository has either its old revision or the whole new one."""
    run = make_run()
    hub.failing = failing
    said = publish(run, "--repo", REPO)
    assert said.startswith(f"error: {REPO}") and "\n" not in said
    for repo_id, repo in hub.repos.items():
        whole = len(repo.commits) == 2
        assert whole == ({"README.md", "model.safetensors", "config.json"} <= files(hub, repo_id))
        assert whole or files(hub, repo_id) == {".gitattributes"}
    assert not list(run.glob("**/.*"))
    hub.failing = None
    assert not publish(run, "--repo", REPO)
    assert all(len(repo.commits) == 2 for repo in hub.repos.values())
