"""Pushing to a Hub and loading from it, with the real client over HTTP."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import HfApi, snapshot_download
from toy import random_texts, text_pairs, toy_tokenizer

from admin_nmt import AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.hub.model_folder import local_folder
from admin_nmt.hub.repositories import HubError, is_stale, push_folder
from admin_nmt.model import cache_name
from admin_nmt.weights.exporting import export_standard

REPO = "user/model"
CODE = {path.name for path in Path(cache_name.__file__).parent.glob("[!_]*.py")}


@pytest.fixture
def model(tiny_model, tokenizer):
    """Builds a random tiny model for the toy tokenizer."""
    return lambda **fields: tiny_model(**{"vocab_size": len(tokenizer)} | fields)


@pytest.fixture
def folder(model_folder) -> Path:
    """A saved ADMIN model with its tokenizer and a card."""
    (model_folder / "README.md").write_text("# A model\n")
    return model_folder


def generated(model, tokenizer, texts) -> list[list[int]]:
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    return model.generate(**batch, num_beams=5, max_new_tokens=12).tolist()


def head(hub, repo_id: str = REPO) -> dict:
    """The files of a repository."""
    return hub.repos[repo_id].head


def change_weights(folder: Path) -> None:
    model = AdminForConditionalGeneration.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight[5] += 1
    model.save_pretrained(folder)


def test_round_trip_without_the_package(model, tokenizer, tmp_path, hub):
    """Pushed, and pulled into an empty cache where the package is not installed."""
    texts = random_texts(6, seed=5)
    admin, dlcl = model(), model(variant="dlcl_pre_ln")
    stock = export_standard(admin, tokenizer, tmp_path / "stock")
    for repo_id, ours in (("user/admin", admin), ("user/dlcl", dlcl)):
        ours.push_to_hub(repo_id)
        tokenizer.push_to_hub(repo_id)
    push_folder(tmp_path / "stock", "user/stock")
    assert set(head(hub, "user/admin")) >= CODE | {"README.md", "generation_config.json", "tokenizer.json"}
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HF_HUB_OFFLINE")}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1"}
    repos = {"user/admin": True, "user/dlcl": True, "user/stock": False}
    worker = Path(__file__).parents[1] / "hub_worker.py"
    command = [sys.executable, worker, json.dumps({"texts": texts, "repos": repos})]
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "cwd": tmp_path}
    result = subprocess.run(command, env=environment, **options)
    assert result.returncode == 0, result.stderr[-3000:]
    pulled = json.loads(result.stdout)  # so nobody was asked whether to trust the code
    for repo_id, ours in (("user/admin", admin), ("user/dlcl", dlcl), ("user/stock", stock)):
        assert pulled[repo_id]["tokens"] == generated(ours, tokenizer, texts)
    ours = "transformers_modules.AdminForConditionalGeneration"
    assert [found["class"] for found in pulled.values()] == [ours, ours, "transformers.MarianMTModel"]
    assert len({str(result["tokens"]) for result in pulled.values()}) == 2  # ADMIN is its fold, DLCL another model


def test_only_what_changed_is_sent(folder, hub):
    url = push_folder(folder, REPO)
    assert set(head(hub)) == {path.name for path in folder.iterdir()} | {".gitattributes"}
    assert all(head(hub)[path.name].content == path.read_bytes() for path in folder.iterdir())
    assert len(hub.sent("PUT ")) == 1

    hub.requests.clear()
    assert push_folder(folder, REPO) == url
    assert not hub.sent("PUT |POST .*/commit/")
    described = 1_000 * len([*folder.iterdir()])  # bytes of the names, the sizes and the files' first bytes
    assert sum(size for _, size in hub.sent("")) < described

    hub.requests.clear()
    (folder / "README.md").write_text("# A better card\n")
    assert push_folder(folder, REPO) != url
    ((_, size),) = hub.sent("POST .*/commit/")
    assert size < 400 and not hub.sent("PUT ")
    assert head(hub)["README.md"].content == b"# A better card\n"

    hub.requests.clear()
    change_weights(folder)
    push_folder(folder, REPO)
    ((_, size),) = hub.sent("POST .*/commit/")
    assert size < 400 and [size for _, size in hub.sent("PUT ")] == [(folder / "model.safetensors").stat().st_size]
    assert len(hub.repos[REPO].commits) == 4  # the first is the Hub's own


def test_what_an_earlier_model_left_is_deleted_and_the_rest_stays(folder, tokenizer, hub):
    save_tokenizers(folder, tokenizer, toy_tokenizer(seed=3))
    (folder / "old.py").write_text("")
    (folder / "model-00001-of-00002.safetensors").write_bytes(bytes(9))
    push_folder(folder, REPO)
    HfApi().upload_file(path_or_fileobj=b"theirs", path_in_repo="notes.txt", repo_id=REPO)
    assert "target_tokenizer/tokenizer.json" in head(hub)
    for name in ("old.py", "model-00001-of-00002.safetensors"):
        (folder / name).unlink()
    shutil.rmtree(folder / "target_tokenizer")
    push_folder(folder, REPO)
    assert set(head(hub)) == {path.name for path in folder.iterdir()} | {".gitattributes", "notes.txt"}
    stale = ("old.safetensors", "modeling_old.py", "target_tokenizer/tokenizer.json")
    kept = ("scripts/clean.py", "onnx/model.safetensors", "checkpoint-100/model.safetensors", "README.md")
    assert [path for path in (*stale, *kept) if is_stale(path, {})] == list(stale)


PRIVATE = (
    "id_rsa", "credentials.json", "README.md~", "config.json.bak", "core", "core.4711", ".env.py",
    ".cache/x.json", "keys/model.safetensors", "notes.txt", "results.json", "target_tokenizer/id_rsa",
)  # fmt: skip


def test_what_is_no_part_of_a_model_is_named_and_not_pushed(folder, tmp_path, hub, caplog):
    public = {path.name for path in folder.iterdir()} | {".gitattributes"}
    for name in PRIVATE:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    (folder / "training_args.bin").write_text("a pickle that every training leaves, of which nobody need hear")
    push_folder(folder, REPO)
    assert set(head(hub)) == public and "training_args" not in caplog.text
    assert all(name in caplog.text for name in PRIVATE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        push_folder(tmp_path / "empty", "user/empty")
    assert "user/empty" not in hub.repos


def test_private_repositories(folder, hub):
    push_folder(folder, REPO, private=True)
    assert hub.repos[REPO].private
    push_folder(folder, "user/public")
    with pytest.raises(HubError, match="user/public"):
        push_folder(folder, "user/public", private=True)


def test_a_broken_connection_leaves_the_old_revision(folder, tmp_path, hub):
    push_folder(folder, REPO)
    # Copies, because older releases of safetensors read from the file when a tensor is looked at.
    before = {n: x.clone() for n, x in AdminForConditionalGeneration.from_pretrained(folder).state_dict().items()}
    change_weights(folder)
    hub.dropping = 100
    with pytest.raises(HubError, match="push again"):
        push_folder(folder, REPO)
    assert len(hub.repos[REPO].commits) == 2
    pulled = AdminForConditionalGeneration.from_pretrained(snapshot_download(REPO, cache_dir=tmp_path / "cache"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in pulled.state_dict().items())
    hub.dropping = 1  # the client tries again by itself
    push_folder(folder, REPO)
    assert head(hub)["model.safetensors"].content == (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("request_", ["lfs/[0-9a-f]+", "commit"])
def test_a_failing_hub_is_one_sentence(folder, hub, request_):
    push_folder(folder, REPO)
    before = dict(head(hub))
    change_weights(folder)
    hub.failing = f"(POST|PUT) .*{request_}"
    with pytest.raises(HubError, match=r"^user/model: .*push again"):
        push_folder(folder, REPO)
    assert head(hub) == before and len(hub.repos[REPO].commits) == 2
    hub.failing = None
    push_folder(folder, REPO)
    assert head(hub)["model.safetensors"] != before["model.safetensors"]


def test_a_wrong_token_and_no_hub(folder, hub, monkeypatch):
    with monkeypatch.context() as context:
        context.setenv("HF_TOKEN", "wrong")
        with pytest.raises(HubError, match="401"):
            push_folder(folder, REPO)
    with pytest.raises(HubError, match="a/b/c"):
        push_folder(folder, "a/b/c")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(HubError, match="refused"):
        push_folder(folder, REPO)


def test_two_pushes_at_once_do_not_mix(folder, hub, monkeypatch):
    push_folder(folder, REPO)
    seen = HfApi().model_info(REPO)
    (folder / "README.md").write_text("# Theirs\n")
    push_folder(folder, REPO)
    (folder / "README.md").write_text("# Ours\n")
    monkeypatch.setattr(HfApi, "model_info", lambda *args, **kwargs: SimpleNamespace(**vars(seen)))
    with pytest.raises(HubError, match="412"):
        push_folder(folder, REPO)
    assert head(hub)["README.md"].content == b"# Theirs\n"


def test_the_same_weights_for_other_frameworks_are_not_fetched(folder, hub):
    others = ("tf_model.h5", "rust_model.ot", "onnx/model.onnx", "checkpoint-2/optimizer.pt", "checkpoint-2/model.bin")
    push_folder(folder, REPO)
    for name in others:
        HfApi().upload_file(path_or_fileobj=b"weights", path_in_repo=name, repo_id=REPO)
    fetched = local_folder(REPO)
    names = {path.relative_to(fetched).as_posix() for path in fetched.rglob("*") if path.is_file()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not [name for name in names if name.endswith((".h5", ".ot", ".onnx")) or name.startswith("checkpoint-")]


@pytest.mark.parametrize("strategy", ["end", "checkpoint"])
def test_the_trainer_pushes_a_whole_model(model, tokenizer, tmp_path, hub, strategy):
    settings = {"max_steps": 2, "save_steps": 2, "max_tokens": 64, "warmup_steps": 1, "eval_bleu": False}
    pushing = {"push_to_hub": True, "hub_model_id": REPO, "hub_strategy": strategy}
    args = AdminTrainingArguments(str(tmp_path / "run"), use_cpu=True, disable_tqdm=True, **settings, **pushing)
    data = text_pairs(tokenizer, 20)
    trainer = AdminTrainer(model(), args, train_dataset=data, eval_dataset=data, processing_class=tokenizer)
    trainer.train()
    if strategy == "end":
        trainer.evaluate()
        trainer.push_to_hub(language=["en", "de"])
    else:
        trainer._finish_current_push()
    files = head(hub)
    wanted = {"README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert set(files) >= CODE | wanted
    if strategy == "checkpoint":
        assert set(files) >= {f"last-checkpoint/{name}" for name in ("manifest.json", "optimizer.pt")}
    assert json.loads(files["config.json"].content)["auto_map"]["AutoModelForSeq2SeqLM"]
    card = files["README.md"].content.decode()
    assert "- max_tokens: 64" in card and "optimizer: radam" in card
    assert "batch_size" not in card and "[](" not in card and "datasets:" not in card
    pulled = AdminForConditionalGeneration.from_pretrained(snapshot_download(REPO, cache_dir=tmp_path / "cache"))
    pushed = trainer.model.state_dict()
    assert all(torch.equal(tensor, pushed[name]) for name, tensor in pulled.state_dict().items())
