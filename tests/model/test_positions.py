"""Sinusoids and the rows that are read from them."""

import pytest
import torch
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from admin_nmt.model.positions import SinusoidalPositions, fairseq_sinusoids, marian_sinusoids, position_ids


@pytest.mark.parametrize("d", [2, 16, 48, 512])
def test_marian_table_is_the_stock_one(d):
    stock = MarianSinusoidalPositionalEmbedding(300, d).create_weight()
    torch.testing.assert_close(marian_sinusoids(300, d), stock, rtol=0, atol=0)


def test_fairseq_counts_from_two():
    table = fairseq_sinusoids(5, 8)
    assert table[0, 0].item() == pytest.approx(torch.tensor(2.0).sin().item())
    assert table[3, 3].item() == pytest.approx(torch.tensor(5 / 10000.0).sin().item(), abs=1e-7)


def test_rows_count_the_tokens_alone():
    """On either side of the padding, and behind cached positions."""
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    assert position_ids(torch.empty(2, 5, 16), mask).tolist() == [[1, 2, 3, 0, 0], [0, 0, 1, 2, 3]]
    one_more = torch.empty(2, 1, 16)
    assert position_ids(one_more, None, past=4).tolist() == [[5]]
    assert position_ids(one_more, torch.tensor([[1, 1, 1], [0, 1, 1]]), past=2).tolist() == [[3], [2]]


def test_padding_reads_zeros(tiny_config):
    positions = SinusoidalPositions(tiny_config())
    rows = positions(torch.empty(1, 3, 16), torch.tensor([[0, 1, 1]]))
    torch.testing.assert_close(rows[0], torch.cat([torch.zeros(1, 16), marian_sinusoids(2, 16)]))


@pytest.mark.parametrize(("source", "target"), [(7, 2), (2, 7)])
def test_too_long_a_sentence_is_named(tiny_model, source, target):
    model = tiny_model(max_position_embeddings=6)
    assert model(torch.full((1, 6), 5), decoder_input_ids=torch.full((1, 6), 5)).logits.isfinite().all()
    with pytest.raises(ValueError, match="max_position_embeddings"):
        model(torch.full((1, source), 5), decoder_input_ids=torch.full((1, target), 5))
