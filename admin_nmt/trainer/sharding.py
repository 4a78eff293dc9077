"""FSDP2: weights are sharded in training, but whole in evaluations and in checkpoints."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin, PartialState
from accelerate.utils import DistributedType, str_to_bool
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.torch_version import TorchVersion
from transformers.modeling_layers import GradientCheckpointingLayer

from ..system.processes import gather_shards

OLDEST_TORCH = "2.10"  # whose FSDP2 trains the same weights as one process, by tests/trainer/test_distributed.py


class NoSharding:
    """Every process has the whole model, as with one process or DDP."""

    is_sharded = False

    def shard(self, model: nn.Module) -> None:
        """Shards a model before its optimizer is made."""

    def take_whole_states(self, optimizer: torch.optim.Optimizer) -> None:
        """Has an optimizer of a sharded model cut the whole tensors of a checkpoint's state that it loads."""

    def whole(self, model: nn.Module) -> AbstractContextManager[None]:
        """Every process has all weights in this block, so each may run the model as often as it likes."""
        return nullcontext()

    def saved_whole(self, owner: nn.Module | Any, keep: bool) -> AbstractContextManager[None]:
        """`state_dict` of a model or an optimizer has whole tensors in this block, which every process enters.

        Args:
            owner: the model, or accelerate's wrapper of the optimizer.
            keep: this process will call it; the others only help gather.
        """
        return nullcontext()


class Fsdp2(NoSharding):
    """A model whose weights, gradients and optimizer are sharded over the processes, one layer after the other.

    A checkpoint is the same as without: weights as `from_pretrained` reads them and the whole state of the optimizer,
    so that a run may go on with another number of processes, sharded or not. Saving gathers one tensor after the other;
    the first process holds the sum of them in CPU memory, and every process reads all of it when a run is resumed.

    Embeddings and output layer stay in the root's shard: a tied matrix cannot be in two, and the loss reads the output
    layer's matrix without calling the layer. accelerate would shard them by themselves, so torch's `fully_shard` is
    called here, and autocast decides what is computed in bfloat16, as in a single process.

    Args:
        plugin: what accelerate's configuration asks for.

    Raises:
        ValueError: in a form that is not supported; or torch is too old.
    """

    is_sharded = True

    def __init__(self, plugin: FullyShardedDataParallelPlugin) -> None:
        check_torch(torch.__version__)
        if plugin.fsdp_version != 2 or plugin.cpu_ram_efficient_loading or plugin.activation_checkpointing:
            raise ValueError(
                "the accelerate configuration asks for FSDP in a form that is not supported; set fsdp_version to 2, "
                "fsdp_cpu_ram_efficient_loading to false, and fsdp_activation_checkpointing to false, for which there "
                "is the training argument activation_checkpointing"
            )
        self.reshard_after_forward = bool(plugin.reshard_after_forward)
        self.offload_policy = plugin.cpu_offload

    def shard(self, model: nn.Module) -> None:
        if isinstance(model, FSDPModule):  # by an earlier training
            return
        for module in list(model.modules()):
            if isinstance(module, GradientCheckpointingLayer):
                fully_shard(
                    module, reshard_after_forward=self.reshard_after_forward, offload_policy=self.offload_policy
                )
        fully_shard(model, offload_policy=self.offload_policy)
        root: Any = model
        root._is_accelerate_prepared = True  # accelerate's mark on what it need not wrap: it would try DDP

    def take_whole_states(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.register_load_state_dict_pre_hook(
            lambda optimizer, state: sharded_state(state, optimizer.param_groups)
        )

    def whole(self, model: nn.Module) -> AbstractContextManager[None]:
        """Takes the memory of all weights on every device. They may only be read."""
        return unsharded(model, self.reshard_after_forward) if isinstance(model, FSDPModule) else nullcontext()

    @contextmanager
    def saved_whole(self, owner: nn.Module | Any, keep: bool) -> Iterator[None]:
        if isinstance(owner, nn.Module):
            weights = whole_weights(owner, keep)

            def replace(module: nn.Module, state: dict[str, Any], *_: Any) -> None:
                state.clear()
                state.update(weights)

            hook = owner.register_state_dict_post_hook(replace)
        else:
            whole = whole_state(owner.state_dict(), keep)
            hook = owner.optimizer.register_state_dict_post_hook(lambda *_: whole)
        try:
            yield
        finally:
            hook.remove()


def sharding_of(accelerator: Accelerator) -> NoSharding:
    """The sharding that the configuration of accelerate asks for, which is taken out of its hands.

    On GPUs it would shard by itself, on CPUs it does not.
    """
    state = accelerator.state
    plugin = getattr(state, "fsdp_plugin", None)
    if state.distributed_type == DistributedType.MULTI_CPU and str_to_bool(os.environ.get("ACCELERATE_USE_FSDP", "no")):
        plugin = FullyShardedDataParallelPlugin()
    if plugin is None:
        return NoSharding()
    state.distributed_type = PartialState().distributed_type  # several processes, and no more than that
    return Fsdp2(plugin)


def check_torch(found: TorchVersion) -> None:
    """Refuses a release of torch that cannot shard.

    Raises:
        ValueError: its FSDP2 gives some weights another gradient than one process does (2.8, 2.9), or lacks what is
            called here (2.7).
    """
    if found < OLDEST_TORCH:
        raise ValueError(
            f"torch {found} is too old for FSDP2: pip install --upgrade 'torch>={OLDEST_TORCH}', or train without FSDP"
        )


@contextmanager
def unsharded(model: FSDPModule, reshard_after_forward: bool) -> Iterator[None]:
    """All weights of an FSDP2 model are on every process in this block, and forward passes communicate nothing.

    Args:
        reshard_after_forward: whether the layers give their weights up after a forward pass in training.
    """
    root: Any = model
    # Whichever module runs first becomes the root, and beam search calls the encoder by itself.
    root._get_fsdp_state()._lazy_init()
    modules = [module for module in root.modules() if isinstance(module, FSDPModule)]
    model.set_reshard_after_forward(False)
    try:
        for module in modules:
            module.unshard()
        yield
    finally:
        for module in modules:
            module.reshard()
            module.set_reshard_after_forward(reshard_after_forward and module is not root, recurse=False)
        # Else the next backward pass fetches weights in the order of this block's passes, another on each process.
        if hasattr(root, "reset_iter_state"):  # not in every release that shards
            root.reset_iter_state()


def whole_weights(model: nn.Module, keep: bool) -> dict[str, Tensor]:
    """Weights by name, whole and in CPU memory, tied ones once; processes that do not `keep` them only help gather."""
    saved, weights = model.state_dict().keys(), {}
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if name in saved:
            gathered = gather_shards(tensor.detach())
            if keep:
                weights[name] = gathered.cpu()
    return weights


def read_weights(folder: str | Path) -> dict[str, Tensor]:
    """The weights that `save_pretrained` left in a folder, in one file or several."""
    paths = sorted(Path(folder).glob("model*.safetensors"))
    return {name: tensor for path in paths for name, tensor in load_file(path).items()}


@torch.no_grad()
def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Gives a model, sharded or not, the whole `weights` that every process has.

    Raises:
        ValueError: a parameter has no weights, or a buffer that is saved with them, such as ω.
    """
    saved = model.state_dict().keys()
    tensors = dict(chain(model.named_parameters(), model.named_buffers()))
    made_anew = getattr(model, "_keys_to_ignore_on_save", None) or ()  # such as the sinusoids of a stock Marian
    missing = sorted((tensors.keys() & saved) - weights.keys() - set(made_anew))
    if missing:
        raise ValueError(f"{missing[0]} is missing among the weights; load those of the same architecture")
    for name, tensor in tensors.items():
        if name in weights:
            tensor.copy_(_shard_like(weights[name], tensor))


def whole_state(state: dict[str, Any], keep: bool) -> dict[str, Any]:
    """An optimizer's state with whole tensors in CPU memory; the processes that do not `keep` it only help gather."""
    entries: dict[int, dict[str, Any]] = {}
    for index, entry in state["state"].items():
        gathered = {name: gather_shards(value) if isinstance(value, Tensor) else value for name, value in entry.items()}
        if keep:
            entries[index] = {name: v.cpu() if isinstance(v, Tensor) else v for name, v in gathered.items()}
    return state | {"state": entries}


def sharded_state(state: dict[str, Any], groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An optimizer's whole state, sharded as its parameters in `groups` are."""
    parameters = [parameter for group in groups for parameter in group["params"]]
    entries = {
        index: {name: _shard_like(value, parameters[index]) for name, value in entry.items()}
        for index, entry in state["state"].items()
    }
    return state | {"state": entries}


def _shard_like(value: Any, parameter: Tensor) -> Any:
    if not isinstance(parameter, DTensor) or not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    if isinstance(value, DTensor):
        return value
    local = value.to(parameter.device)
    return distribute_tensor(local, parameter.device_mesh, parameter.placements, src_data_rank=None)
