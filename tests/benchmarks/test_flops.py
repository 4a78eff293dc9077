"""Operations of a model against torch's own counter, and peaks by the name of a card."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from admin_nmt import AdminForConditionalGeneration
from admin_nmt.model.configuration_admin import VARIANTS
from training.benchmarks.flops import forward_flops, peak_flops, update_flops


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shape", [(3, 9, 7), (1, 2, 11)])
def test_torch_counts_as_many(tiny_config, variant, shape):
    """In the matrix products of every layer, the output layer included."""
    sentences, source, target = shape
    config = tiny_config(variant=variant, encoder_ffn_dim=40, encoder_layers=4)
    model = AdminForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    ids = {"input_ids": torch.ones(sentences, source, dtype=torch.long)}
    ids["decoder_input_ids"] = torch.ones(sentences, target, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**ids)
    assert forward_flops(config, *shape) == counter.get_total_flops()


def test_by_hand(tiny_config):
    """One layer a stack, width 4, feed-forward 8, 10 words, 2 source and 3 target positions."""
    sizes = {"encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
    config = tiny_config(d_model=4, vocab_size=10, pad_token_id=9, variant="pre_ln", **sizes, **heads)
    projections, scores, feed_forward = 4 * 2 * (2 * 4 * 4), 2 * (2 * 2 * 2 * 4), 2 * (2 * 2 * 4 * 8)
    encoder = projections + scores + feed_forward
    own = 4 * 2 * (3 * 4 * 4) + 2 * (2 * 3 * 3 * 4)
    cross = 2 * 2 * (3 * 4 * 4) + 2 * 2 * (2 * 4 * 4) + 2 * (2 * 3 * 2 * 4)
    output = 2 * 3 * 4 * 10
    assert encoder + own + cross + 2 * (2 * 3 * 4 * 8) + output == 2144 == forward_flops(config, 1, 2, 3)
    assert forward_flops(config, 5, 2, 3) == 5 * 2144


def test_an_update_is_three_forward_passes(tiny_config):
    config = tiny_config()
    shapes = [(3, 9, 7), (2, 4, 5)]
    assert update_flops(config, shapes) == 3 * sum(forward_flops(config, *shape) for shape in shapes)


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H200", 989.4),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA L4", 121.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA A10G", None),  # no A10
        ("AMD EPYC", None),
    ],
)
def test_peaks_by_name(name, tera):
    assert peak_flops(name) == (None if tera is None else pytest.approx(tera * 1e12))
