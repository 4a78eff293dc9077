"""`admin-nmt publish`: both models of a run with their cards, or one sentence and nothing sent."""

import json

from finished_run import REPO
from hub_server import HubServer
from toy import invoke

from admin_nmt.hub.run_folder import FINAL, RESULTS, STANDARD
from admin_nmt.runs.cards import write_card


def files(hub: HubServer, repo_id: str) -> set[str]:
    return set(hub.repos[repo_id].head)


def test_both_models_with_their_cards(make_run, hub):
    printed = invoke("publish", make_run(), "--repo", REPO).stdout
    expected = [f"{hub.url}/{REPO}", f"{hub.url}/{REPO}-admin"]
    assert [line.split("/commit/")[0] for line in printed.splitlines()] == expected
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
    assert FINAL in publish(run.parent, "--repo", REPO)  # which is no run
    assert not hub.requests


def test_a_card_of_another_repository_is_refused(make_run, hub, publish):
    run, elsewhere = make_run(), "someone/else"
    assert f"--repo {elsewhere}" in publish(run, "--repo", elsewhere)
    assert not hub.requests
    for name in (STANDARD, FINAL):
        write_card(run, run / name, elsewhere)
    assert not publish(run, "--repo", elsewhere)
    assert list(hub.repos) == [elsewhere, f"{elsewhere}-admin"]


def test_a_failing_hub(make_run, hub, publish):
    """One line; a repository has either its old revision or the whole new one."""
    run = make_run()
    hub.failing = f"POST .*{REPO}-admin/commit"
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
