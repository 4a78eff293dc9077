"""RAdam in a few kernels, whatever the number of parameters."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def rectification(beta2: float, update: float) -> float | None:
    """r_t of Liu, Jiang et al. 2020, *On the Variance of the Adaptive Learning Rate*, alg. 2; None while ρ_t ≤ 5."""
    limit = 2 / (1 - beta2) - 1
    length = limit - 2 * update * beta2**update / (1 - beta2**update)
    if length <= 5:
        return None
    return float(((length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)) ** 0.5)


class FusedRAdam(torch.optim.RAdam):
    """`torch.optim.RAdam`, with the same state, by the kernel of fused AdamW.

    With c = √(1 − β₂ᵗ), the step lr·r·m̂·c / (√v + ε) of RAdam is that of Adam with the rate lr·r and ε/c. torch makes
    it by a dozen lists of kernels. Updates before the rectification, sharded parameters and parameters of different
    age are left to torch.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's; the numbers of updates come to the CPU, where a new state has them and nothing waits for them.

        The Trainer reads the state of a checkpoint to the device of its process.
        """
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state["step"] = state["step"].cpu()

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> Any:
        """As torch's."""
        groups = [(group, self.tensors_of(group)) for group in self.param_groups if group["params"]]
        updates = {float(step) + 1 for _, lists in groups for step in lists[-1]}
        if closure is None and len(updates) == 1 and all(is_fused(*group, *updates) for group in groups):
            for group, lists in groups:
                self.fused_step(group, lists, *updates)
            return None
        return super().step(closure)

    def tensors_of(self, group: dict[str, Any]) -> list[list[Tensor]]:
        """Parameters that have gradients, these, both moments, and the number of updates of each."""
        lists: list[list[Tensor]] = [[] for _ in range(5)]
        self._init_group(group, *lists)
        return lists

    def fused_step(self, group: dict[str, Any], lists: list[list[Tensor]], update: float) -> None:
        """Makes an update of a group by as few kernels as its sizes allow."""
        beta1, beta2 = group["betas"]
        r, correction = rectification(beta2, update) or 1.0, (1 - beta2**update) ** 0.5
        *tensors, steps = lists
        by_kind: Any = self._group_tensors_by_device_and_dtype(tensors)  # type: ignore[arg-type]
        torch._foreach_add_(steps, torch.ones(()), alpha=1.0)
        for (device, _), (kind, _) in by_kind.items():
            parameters, gradients, means, squares = kind
            torch._fused_adamw_(
                parameters,
                gradients,
                means,
                squares,
                [],
                [torch.full((), update, device=device)] * len(parameters),
                lr=group["lr"] * r,
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"] / r,
                eps=group["eps"] / correction,
                amsgrad=False,
                maximize=group["maximize"],
            )


def is_fused(group: dict[str, Any], lists: list[list[Tensor]], update: float) -> bool:
    """True if the kernel of AdamW makes this update of a group."""
    plain = not any(isinstance(parameter, DTensor) for parameter in lists[0])
    return plain and group["decoupled_weight_decay"] and rectification(group["betas"][1], update) is not None
