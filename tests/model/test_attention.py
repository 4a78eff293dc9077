"""Attention by plain batched products."""

import pytest
import torch

from admin_nmt.model.attention import softmax_over_keys


@pytest.mark.parametrize("keys", [1, 2, 7, 8, 9, 15, 16, 17, 31, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_softmax_of_short_rows_is_that_of_pytorch(keys, dtype):
    """Also its gradient, and where a mask leaves one key or none; rows shorter than a vector register are filled up."""
    lowest = torch.finfo(dtype).min
    scores = torch.randn(3, 2, 5, keys, dtype=dtype)
    scores[0, :, :, 1:] = lowest
    scores[1, 0] = lowest
    ours, theirs = (scores.clone().requires_grad_() for _ in range(2))
    weights = softmax_over_keys(ours)
    expected = theirs.softmax(-1, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)
    direction = torch.randn_like(expected)
    for result, leaf in ((weights, ours), (expected, theirs)):
        (result * direction).sum().backward()
        assert leaf.grad is not None
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)
