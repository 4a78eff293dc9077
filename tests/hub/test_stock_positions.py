"""Stock tables of positions come out bit by bit as transformers computes them, and sooner."""

import pytest
import torch
from toy import toy_tokenizer
from transformers import MarianMTModel
from transformers.models.marian import modeling_marian
from transformers.models.pegasus import modeling_pegasus

from admin_nmt.data.tokenization.byte_bpe import save_tokenizers
from admin_nmt.hub import stock_positions
from admin_nmt.hub.model_folder import load_model
from admin_nmt.weights.exporting import standard_model

STOCK = (modeling_marian.MarianSinusoidalPositionalEmbedding, modeling_pegasus.PegasusSinusoidalPositionalEmbedding)


@pytest.fixture
def stock(monkeypatch):
    """The classes as transformers has them, whatever another test has loaded; put back as they were."""
    loaded = {module: module.__spec__.loader for module in (modeling_marian, modeling_pegasus)}
    for kind, (module, loader) in zip(STOCK, loaded.items(), strict=True):
        fresh: dict = {"__name__": module.__name__, "__package__": module.__package__}
        exec(loader.get_code(module.__name__), fresh)
        monkeypatch.setattr(kind, "create_weight", fresh[kind.__name__].create_weight)
    return STOCK


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("positions", "d"), [(1, 2), (7, 5), (64, 16), (200, 130)])
def test_all_numbers_at_once_are_those_one_by_one(stock, positions, d, dtype):
    for kind in stock:
        module = kind(positions, d).to(dtype)
        table, expected = stock_positions.sinusoids(module), module.create_weight()
        assert table.dtype == dtype
        assert torch.equal(table, expected)


def test_a_loaded_model_has_the_table_without_the_slow_formula(stock, tiny_model, tmp_path, monkeypatch):
    tokenizer = toy_tokenizer()
    pad = {"pad_token_id": tokenizer.pad_token_id, "decoder_start_token_id": tokenizer.pad_token_id}
    standard_model(tiny_model(vocab_size=len(tokenizer), **pad)).save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer)
    expected = MarianMTModel.from_pretrained(tmp_path).state_dict()
    slow, tables = STOCK[0].create_weight, []
    monkeypatch.setattr(STOCK[0], "create_weight", lambda self: tables.append(tuple(self.weight.shape)) or slow(self))
    found = load_model(tmp_path).state_dict()
    assert tables == [stock_positions.SMALL]  # the one that is compared
    load_model(tmp_path)
    assert len(tables) == 1
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    "other",
    [
        lambda self: torch.zeros(self.weight.shape),
        lambda self: torch.nn.init.zeros_(self.weight),
        lambda self: None,
        None,
    ],
)
def test_a_release_with_another_table_keeps_its_own(stock, monkeypatch, other):
    marian, pegasus = stock
    if other is None:
        monkeypatch.delattr(marian, "create_weight")
    else:
        monkeypatch.setattr(marian, "create_weight", other)
    stock_positions.use_quick_sinusoids()
    assert getattr(marian, "create_weight", None) is other
    assert pegasus.create_weight is stock_positions.sinusoids
