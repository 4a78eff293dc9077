"""The chunked loss against the equation, torch and fairseq."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from admin_nmt.model import loss as loss_module
from admin_nmt.model.loss import chunked_label_smoothed_nll, kept_rows, label_smoothed_nll, masked_rows

TOKENS, VOCABULARY, WIDTH, PAD = 70, 53, 12, 52
CASES = [(0.0, None), (0.0, PAD), (0.1, None), (0.1, PAD), (0.3, 7)]


@pytest.fixture(params=[1, 20 * VOCABULARY, 1 << 25], ids=["16 rows", "20 rows", "whole"])
def chunks(request, monkeypatch):
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", request.param)


def problem(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States [7, 10, d] and weights with gradients, and labels of which a third is absent."""
    hidden = torch.randn(7, TOKENS // 7, WIDTH, dtype=dtype).requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH, dtype=dtype).requires_grad_()
    targets = torch.randint(8, PAD, hidden.shape[:2])
    return hidden, weight, targets.masked_fill(torch.rand(targets.shape) < 0.3, -100)


def plain(hidden, weight, targets, epsilon, excluded):
    return label_smoothed_nll((hidden @ weight.t()).flatten(0, -2), targets.flatten(), epsilon, excluded)


def by_torch(hidden, weight, targets, epsilon, excluded):
    """PyTorch's loss of the logits without the excluded token, and its NLL."""
    logits, labels = (hidden @ weight.t()).flatten(0, -2), targets.flatten()
    if excluded is not None:
        logits = torch.cat([logits[:, :excluded], logits[:, excluded + 1 :]], 1)
        labels = labels - (labels > excluded).long()
    return (
        cross_entropy(logits, labels, reduction="sum", label_smoothing=epsilon),
        cross_entropy(logits, labels, reduction="sum"),
    )


def gradients(loss, *tensors):
    return torch.autograd.grad(loss * 0.37, tensors)


@pytest.mark.parametrize("rows", [kept_rows, masked_rows])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("epsilon", "excluded"), CASES)
def test_equals_torch(chunks, monkeypatch, epsilon, excluded, dtype, rows):
    """In chunks, also of masked rows as on a GPU, and as the equation has it."""
    monkeypatch.setattr(loss_module, "kept_rows", rows)
    hidden, weight, targets = problem(dtype)
    expected, expected_nll = by_torch(hidden, weight, targets, epsilon, excluded)
    expected_gradients = torch.autograd.grad(expected, (hidden, weight))
    for function in (chunked_label_smoothed_nll, plain):
        loss, nll = function(hidden, weight, targets, epsilon, excluded)
        torch.testing.assert_close(loss.to(dtype), expected, rtol=2e-6, atol=0)
        torch.testing.assert_close(nll.detach().to(dtype), expected_nll.detach(), rtol=2e-6, atol=0)
        found = torch.autograd.grad(loss, (hidden, weight))
        torch.testing.assert_close(found, expected_gradients, rtol=1e-5, atol=1e-5)
        assert excluded is None or not found[1][excluded].any()


@pytest.mark.shared
def test_equals_fairseq(shared):
    folder = shared / "reference" / "misc"
    expected = json.loads((folder / "meta.json").read_text())["label_smoothing"]
    tensors = load_file(folder / "misc.safetensors")
    logits, targets = tensors["ls.logits"], tensors["ls.target"]
    targets = targets.masked_fill(targets == expected["pad"], -100)
    for loss, nll in (
        chunked_label_smoothed_nll(logits, torch.eye(logits.shape[1]), targets, expected["eps"], None),
        label_smoothed_nll(logits, targets, expected["eps"], None),
    ):
        assert (loss.item(), nll.item()) == pytest.approx((expected["loss_sum"], expected["nll_sum"]), abs=1e-5)


@pytest.mark.parametrize("frozen", [(0,), (1,), (0, 1)], ids=["states", "weights", "both"])
def test_only_what_is_trained_gets_a_gradient(frozen):
    tensors = problem()
    expected, _ = plain(*tensors, 0.1, PAD)
    expected_gradients = gradients(expected, *tensors[:2])
    for index in frozen:
        tensors[index].requires_grad_(False)
    loss, _ = chunked_label_smoothed_nll(*tensors, 0.1, PAD)
    torch.testing.assert_close(loss.detach(), expected.detach())
    for index in {0, 1}.difference(frozen):
        found = gradients(loss, tensors[index])[0]
        torch.testing.assert_close(found, expected_gradients[index], rtol=1e-5, atol=1e-5)


def test_a_second_backward_and_second_derivatives_are_refused():
    """Second derivatives would be wrong, as the first are constants."""
    hidden, weight, targets = problem()
    loss, _ = chunked_label_smoothed_nll(hidden, weight, targets, 0.1, PAD)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(loss, hidden, create_graph=True)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated before"):
        loss.backward()


def test_autocast_is_close():
    hidden, weight, targets = problem()
    expected, _ = plain(hidden, weight, targets, 0.1, PAD)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = chunked_label_smoothed_nll(hidden, weight, targets, 0.1, PAD)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=5e-3)
    for ours, reference in zip(gradients(loss, hidden, weight), gradients(expected, hidden, weight), strict=True):
        assert ours.dtype == torch.float32
        assert (ours - reference).norm() < 0.02 * reference.norm()


class Largest(TorchDispatchMode):
    """Remembers the number of elements of the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **kwargs or {})
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def test_logits_never_exist_as_a_whole(monkeypatch):
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 1)
    hidden, weight, targets = torch.randn(256, 4), torch.randn(500, 4), torch.randint(500, (256,))
    with Largest() as chunked:
        loss, _ = chunked_label_smoothed_nll(hidden.requires_grad_(), weight.requires_grad_(), targets, 0.1, None)
        loss.backward()
    with Largest() as whole:
        plain(hidden, weight, targets, 0.1, None)
    assert chunked.elements == 16 * len(weight)
    assert whole.elements == len(hidden) * len(weight)
