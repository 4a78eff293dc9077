"""Operations of a model against torch's own counter, and peaks by the name of a card."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from admin_nmt import AdminForConditionalGeneration
from training.benchmarks.flops import forward_flops, peak_flops


@pytest.mark.parametrize("variant", ["post_ln", "transparent_post_ln"])
def test_torch_counts_as_many(tiny_config, variant):
    """In the matrix products of every layer, the output layer included."""
    sentences, source, target = 3, 9, 7
    config = tiny_config(variant=variant, encoder_ffn_dim=40, encoder_layers=4)
    model = AdminForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    ids = {"input_ids": torch.ones(sentences, source, dtype=torch.long)}
    ids["decoder_input_ids"] = torch.ones(sentences, target, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**ids)
    assert forward_flops(config, sentences, source, target) == counter.get_total_flops()


@pytest.mark.parametrize(
    ("name", "tera"), [("NVIDIA H200", 989.4), ("NVIDIA H100 PCIe", 756.5), ("NVIDIA L40S", 362.0), ("AMD EPYC", None)]
)
def test_peaks_by_name(name, tera):
    assert peak_flops(name) == (None if tera is None else pytest.approx(tera * 1e12))
