"""The training loss of a stock model."""

import pytest
import torch
from transformers.modeling_outputs import Seq2SeqLMOutput

from admin_nmt.trainer.stock_loss import LabelSmoothedLoss

PAD, VOCABULARY = 19, 20


@pytest.mark.parametrize("num_items", [None, 20])
def test_a_stock_models_loss_takes_padding_for_no_target(num_items):
    targets = torch.randint(0, PAD, (4, 6)).masked_fill(torch.rand(4, 6) < 0.3, -100)
    logits = torch.randn(4, 6, VOCABULARY, requires_grad=True)
    compute, outputs = LabelSmoothedLoss(0.1, excluded=PAD), Seq2SeqLMOutput(logits=logits)
    expected = compute(outputs, targets, num_items)
    padded = targets.masked_fill(targets == -100, PAD)
    if num_items is None:
        loss = compute(outputs, padded)
        torch.testing.assert_close(loss, expected, rtol=0, atol=0)
        assert torch.equal(*(torch.autograd.grad(one, logits)[0] for one in (loss, expected)))
    else:
        with pytest.raises(ValueError, match=rf"labels: hold <pad> \(id {PAD}\), which the Trainer counts"):
            compute(outputs, padded, num_items)
