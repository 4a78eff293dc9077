"""The guide's fine-tuning examples, run as they stand on a folded and on an unfolded model, and what else peers do."""

import logging
import re
import warnings
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from toy import random_texts, save_models
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from admin_nmt.data.tokenization.byte_bpe import train_tokenizer

ROOT = Path(__file__).parents[1]
FOLDER = 'folder = "runs/phrasebook/standard"'


def example(title: str) -> str:
    """The code block below the comment of this title in the guide."""
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "training" / "guide").glob("*.md"))
    match = re.search(rf"<!-- {title} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert match, f"the guide has no example {title!r}"
    return match[1]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run folder with a small model in `final` and its stock export in `standard`."""
    folder = tmp_path_factory.mktemp("runs")
    texts = [*random_texts(200), "Zwei Drachen kosten zehn Euro. The kite is behind the shop."]
    save_models(folder, train_tokenizer(texts, 400), d_model=32, max_position_embeddings=200)
    return folder


def loss_of_pairs(folder: Path, model: torch.nn.Module, scope: dict) -> float:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(scope["sources"], return_tensors="pt", padding=True)
    labels = tokenizer(text_target=scope["targets"], return_tensors="pt", padding=True)["input_ids"]
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    with torch.no_grad():
        return float(model.eval()(**batch, labels=labels).loss)


@pytest.mark.parametrize("kind", ["standard", "final"])
@pytest.mark.parametrize("trainer", ["Seq2SeqTrainer", "AdminTrainer"])
def test_examples_fine_tune(run, kind, trainer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = example(f"fine-tuning with {trainer}")
    assert code.count(FOLDER) == 1
    scope: dict = {}
    exec(code.replace(FOLDER, f"folder = {str(run / kind)!r}"), scope)
    tuned = scope["model"]
    before = loss_of_pairs(run / kind, AutoModelForSeq2SeqLM.from_pretrained(run / kind), scope)
    assert loss_of_pairs(run / kind, tuned, scope) < before
    assert not tuned.get_input_embeddings().weight[tuned.config.pad_token_id].any()  # other tools start from zeros
    if trainer == "Seq2SeqTrainer":
        saved = AutoModelForSeq2SeqLM.from_pretrained("runs/tuned")
        assert loss_of_pairs(run / kind, saved, scope) == loss_of_pairs(run / kind, tuned, scope)


@pytest.fixture
def complaints(caplog):
    """What transformers, torch and datasets warn of."""
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [*(str(w.message) for w in caught), *(r.getMessage() for r in caplog.records if r.levelno > 20)]
    logger.removeHandler(caplog.handler)


@pytest.mark.parametrize("kind", ["standard", "final"])
def test_a_peers_script_trains_and_generates_without_a_warning(run, kind, tmp_path, complaints):
    folder, sources, targets = run / kind, random_texts(8), random_texts(8, seed=1)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSeq2SeqLM.from_pretrained(folder)
    rows = tokenizer(sources, text_target=targets, truncation=True)
    expected = loss_of_pairs(folder, model, {"sources": sources, "targets": targets})
    settings = {"max_steps": 1, "per_device_train_batch_size": 8, "logging_steps": 1, "report_to": "none"}
    generating = {"predict_with_generate": True, "generation_max_length": 6}
    args = Seq2SeqTrainingArguments(str(tmp_path), use_cpu=True, disable_tqdm=True, **settings, **generating)
    data, collator = Dataset.from_dict(dict(rows)), DataCollatorForSeq2Seq(tokenizer, model)
    trainer = Seq2SeqTrainer(model, args, collator, data, data, tokenizer)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)
    if kind == "final":
        model.config.label_smoothing = 0.0
    trainer.train()
    (loss,) = (entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
    assert loss == pytest.approx(expected, rel=1e-4)
    written = trainer.predict(trainer.eval_dataset).predictions
    assert (written[:, 6:] == tokenizer.pad_token_id).all() and (written[:, 5] != tokenizer.pad_token_id).any()
    trainer.save_model()
    saved = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert saved.generation_config.max_length == model.config.max_position_embeddings
    assert AutoTokenizer.from_pretrained(tmp_path).model_max_length == model.config.max_position_embeddings
    assert complaints() == []
