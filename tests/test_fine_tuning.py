"""The pages' fine-tuning examples, run as they stand on a folded and on an unfolded model."""

import re
from pathlib import Path

import pytest
import torch
from toy import random_texts
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.exporting import export_standard
from admin_nmt.tokenization.byte_bpe import save_tokenizers, train_tokenizer

ROOT = Path(__file__).parents[1]
FOLDER = 'folder = "runs/phrasebook/standard"'


def example(page: str, title: str) -> str:
    """The code block below the page's comment of this title."""
    text = (ROOT / page).read_text(encoding="utf-8")
    match = re.search(rf"<!-- {title} -->\n```python\n(.*?)```", text, re.DOTALL)
    assert match, f"{page} has no example {title!r}"
    return match[1]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run folder with a small model in `final` and its stock export in `standard`."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("runs")
    tokenizer = train_tokenizer(
        [*random_texts(200), "Zwei Drachen kosten zehn Euro. The kite is behind the shop."], 400
    )
    size = {f"{stack}_ffn_dim": 32 for stack in ("encoder", "decoder")}
    size |= {f"{stack}_attention_heads": 4 for stack in ("encoder", "decoder")}
    config = AdminConfig(vocab_size=len(tokenizer), d_model=32, encoder_layers=3, decoder_layers=2, dropout=0.0, **size)
    model = AdminForConditionalGeneration(config).eval()
    model.save_pretrained(folder / "final")
    save_tokenizers(folder / "final", tokenizer)
    export_standard(model, tokenizer, folder / "standard")
    return folder


def loss_of_pairs(folder: Path, model: torch.nn.Module, scope: dict) -> float:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(scope["sources"], return_tensors="pt", padding=True)
    labels = tokenizer(text_target=scope["targets"], return_tensors="pt", padding=True)["input_ids"]
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, -100)
    with torch.no_grad():
        return float(model.eval()(**batch, labels=labels).loss)


@pytest.mark.parametrize("kind", ["standard", "final"])
@pytest.mark.parametrize(
    ("page", "trainer"), [("README.md", "Seq2SeqTrainer"), ("training/README.md", "AdminTrainer")], ids=str
)
def test_examples_fine_tune(run, kind, page, trainer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = example(page, f"fine-tuning with {trainer}")
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
