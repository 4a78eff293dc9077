"""Models to serve and runs to publish."""

from pathlib import Path

import pytest
from finished_run import make_run, publish  # noqa: F401 (fixtures)
from toy import toy_tokenizer

from admin_nmt.data.tokenization.byte_bpe import save_tokenizers
from admin_nmt.demo.session import ServedModel


@pytest.fixture
def folder(tiny_model, tmp_path) -> Path:
    """A folder with a model of random weights."""
    tokenizer = toy_tokenizer()
    model = tiny_model(vocab_size=len(tokenizer), max_position_embeddings=64)
    model.save_pretrained(tmp_path / "model")
    save_tokenizers(tmp_path / "model", tokenizer)
    return tmp_path / "model"


@pytest.fixture
def served(folder) -> ServedModel:
    """That model behind a page."""
    return ServedModel(folder)
