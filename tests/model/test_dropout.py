"""Our dropout does what torch's does, with masks of its own."""

import pytest
import torch

from admin_nmt.model.dropout import RESOLUTION, Dropout, random_mask

SIZE = 400_000


def five_sigma(p: float, n: int) -> float:
    return 5 * (p * (1 - p) / n) ** 0.5


@pytest.mark.parametrize("p", [0.01, 0.1, 0.3, 0.5, 0.9])
def test_share_of_survivors(p):
    kept = random_mask(torch.Size([SIZE // 4, 4]), p).double()
    assert kept.mean().item() == pytest.approx(1 - p, abs=five_sigma(p, SIZE) + 1 / RESOLUTION)
    # The four entries that share one draw are as likely as any, and independent of each other.
    assert kept.mean(0).tolist() == pytest.approx([1 - p] * 4, abs=five_sigma(p, SIZE // 4) + 1 / RESOLUTION)
    correlations = torch.corrcoef(kept.t()) - torch.eye(4)
    assert correlations.abs().max() < 5 / (SIZE // 4) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradient_is_the_mask(dtype):
    x = torch.rand(64, 33).add(0.5).to(dtype).requires_grad_()  # no zeros but those of the mask
    y = Dropout(0.25)(x)
    y.backward(torch.ones_like(y))
    torch.testing.assert_close(x.grad, torch.where(y == 0, 0.0, 4 / 3).to(dtype))
    torch.testing.assert_close(y, x * x.grad)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_falls_in_training_alone(tiny_model, batch, attention, name):
    rates = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    model, without = (tiny_model(**rates | rate, attn_implementation=attention) for rate in ({name: 0.5}, {}))
    without.load_state_dict(model.state_dict())
    inputs = {"input_ids": batch["input_ids"], "decoder_input_ids": batch["input_ids"]}
    with torch.no_grad():
        expected = without.train()(**inputs).logits
        assert torch.equal(model.eval()(**inputs).logits, expected)
        first, second = (model.train()(**inputs).logits for _ in range(2))
    assert not torch.allclose(first, expected, atol=1e-3)
    assert not torch.allclose(first, second, atol=1e-3)
