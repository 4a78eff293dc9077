"""Devices: cuDNN's attention is left out where batches have many shapes."""

from collections.abc import Iterator

import pytest
import torch

from admin_nmt.system.devices import without_cudnn_attention


@pytest.fixture(autouse=True)
def allowed() -> Iterator[None]:
    """cuDNN's attention may be taken, as PyTorch has it; the setting is put back."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield
    torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize(("device", "meanwhile"), [("cuda", False), ("cpu", True)])
def test_only_on_a_gpu_and_only_meanwhile(device, meanwhile):
    with pytest.raises(KeyError), without_cudnn_attention(torch.device(device)):
        assert torch.backends.cuda.cudnn_sdp_enabled() == meanwhile
        raise KeyError
    assert torch.backends.cuda.cudnn_sdp_enabled()


def test_what_a_trainer_has_left_out_stays_out():
    torch.backends.cuda.enable_cudnn_sdp(False)
    with without_cudnn_attention(torch.device("cuda")):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert not torch.backends.cuda.cudnn_sdp_enabled()
