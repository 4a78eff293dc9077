"""RAdam by the kernel of fused AdamW equals torch's own."""

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from admin_nmt.trainer.optimizers.fused_radam import FusedRAdam, rectification

UPDATES = 40


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(*shape, dtype=dtype)) for shape in ((5, 3), (7,), (2, 2))]


def groups(trained: list[nn.Parameter]) -> list[dict]:
    return [{"params": trained[:2], "weight_decay": 0.1}, {"params": trained[2:], "weight_decay": 0.0}]


def draw_gradients(*copies: list[nn.Parameter]) -> None:
    for same in zip(*copies, strict=True):
        gradient = torch.randn_like(same[0]) * 10 ** torch.randint(-4, 2, ()).item()
        for parameter in same:
            parameter.grad = gradient.clone()


def optimizers(ours: list[nn.Parameter], theirs: list[nn.Parameter], beta2: float = 0.98):
    settings = {"lr": 0.01, "betas": (0.9, beta2), "eps": 1e-6, "decoupled_weight_decay": True, "foreach": True}
    return FusedRAdam(groups(ours), **settings), torch.optim.RAdam(groups(theirs), **settings)


@pytest.mark.parametrize(
    ("beta2", "exchanged", "late"), [(0.98, (), 0), (0.999, (), 0), (0.98, (2, 9, 20), 0), (0.98, (), 8)]
)
def test_equals_torch(beta2, exchanged, late):
    """Also where they exchange their states after some updates, and a parameter is used only after `late`."""
    ours = parameters()
    theirs = copy.deepcopy(ours)
    fused, plain = optimizers(ours, theirs, beta2)
    for update in range(UPDATES):
        draw_gradients(ours, theirs)
        if update < late:
            ours[1].grad = theirs[1].grad = None
        for optimizer in (fused, plain):
            for group in optimizer.param_groups:
                group["lr"] = 0.01 / (update + 1)
            optimizer.step()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
        if update in exchanged:
            states = copy.deepcopy(fused.state_dict()), copy.deepcopy(plain.state_dict())
            plain.load_state_dict(states[0])
            fused.load_state_dict(states[1])


def test_one_kernel_a_group(monkeypatch):
    ours, calls, kernel = parameters(), [], torch._fused_adamw_
    fused, _ = optimizers(ours, copy.deepcopy(ours))
    for _ in range(9):
        draw_gradients(ours)
        fused.step()
    monkeypatch.setattr(torch, "_fused_adamw_", lambda *args, **options: calls.append(kernel(*args, **options)))
    draw_gradients(ours)
    fused.step()
    assert len(calls) == 2


def test_rectification_begins_as_in_the_paper():
    assert [rectification(0.98, update) is None for update in range(1, 8)] == [True] * 5 + [False] * 2
    assert rectification(0.98, 100_000) == pytest.approx(1)


def test_a_state_that_was_read_to_a_gpu_has_its_numbers_of_updates_on_the_cpu():
    """As a new one: the kernels that count them take no others, and to read one would wait for the GPU."""
    with FakeTensorMode():
        trained = nn.Parameter(torch.zeros(3, device="cuda"))
        trained.grad = torch.zeros_like(trained)
        first, second = (FusedRAdam([trained], foreach=True, decoupled_weight_decay=True) for _ in range(2))
        first.tensors_of(first.param_groups[0])  # makes the state
        state = first.state_dict()
        state["state"][0]["step"] = torch.zeros((), device="cuda")
        second.load_state_dict(state)
    assert {name: x.device.type for name, x in second.state[trained].items()} == {
        "step": "cpu", "exp_avg": "cuda", "exp_avg_sq": "cuda",
    }  # fmt: skip
