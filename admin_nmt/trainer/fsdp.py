"""FSDP2 under the Trainer: weights are sharded in training, but whole in evaluations and in checkpoints."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.state import DistributedType
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.torch_version import TorchVersion
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINING_ARGS_NAME

from .hooks import TrainerHooks

OLDEST_TORCH = "2.10"  # whose FSDP2 trains the same weights as one process, by tests/trainer/test_distributed.py


class ShardingTrainer(TrainerHooks):
    """A `Seq2SeqTrainer` whose checkpoints are the same under FSDP2 as without it.

    A checkpoint has the weights as `from_pretrained` reads them and the whole state of the optimizer, so that a run
    may go on with another number of processes, sharded or not. Saving gathers one tensor after the other; the first
    process holds the sum of them in CPU memory, and every process reads all of it when a run is resumed.
    """

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if not self.is_fsdp_enabled and self.accelerator.distributed_type == DistributedType.MULTI_CPU:
            self.is_fsdp_enabled = shard_on_cpus(self.accelerator.state)
        if not self.is_fsdp_enabled:
            return
        check_torch(torch.__version__)
        plugin = self.accelerator.state.fsdp_plugin
        if plugin.fsdp_version != 2 or plugin.cpu_ram_efficient_loading or plugin.activation_checkpointing:
            raise ValueError(
                "the accelerate configuration asks for FSDP in a form that is not supported; set fsdp_version to 2, "
                "fsdp_cpu_ram_efficient_loading to false, and fsdp_activation_checkpointing to false, for which there "
                "is the training argument activation_checkpointing"
            )
        # accelerate's policy rounds parameters, gradients, residual stream and loss to bfloat16. Without one, autocast
        # decides what is computed in it, as in a single process; weights then travel in twice as many bytes.
        plugin.mixed_precision_policy = MixedPrecisionPolicy()

    def wrapping(self) -> AbstractContextManager[None]:
        return embeddings_in_the_root(self.model) if self.is_fsdp_enabled else super().wrapping()

    @contextlib.contextmanager
    def whole_model(self) -> Iterator[None]:
        """Every process has all weights in this block, so each may run the model as often as it likes.

        That takes the memory of the weights on every device. They are read only here.

        Raises:
            ValueError: DeepSpeed ZeRO-3 shards them.
        """
        if self.is_deepspeed_enabled and self.accelerator.state.deepspeed_plugin.zero_stage == 3:
            raise ValueError(
                "a model that DeepSpeed ZeRO-3 shards cannot be evaluated in training; set eval_strategy to no, or "
                "start with training/accelerate/fsdp2.yaml"
            )
        if isinstance(self.model, FSDPModule):
            with unsharded(self.model, self.accelerator.state.fsdp_plugin.reshard_after_forward):
                yield
        else:
            yield

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if not self.is_fsdp_enabled:
            return super().save_model(output_dir, _internal_call)
        folder = str(output_dir or self.args.output_dir)
        weights = whole_weights(self.model, keep=self.args.should_save)
        if self.args.should_save:
            self.model.save_pretrained(folder, state_dict=weights)
            torch.save(self.args, os.path.join(folder, TRAINING_ARGS_NAME))
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def save_sharded_state(self, folder: str) -> None:
        state = whole_state(self.optimizer.state_dict(), keep=self.args.should_save)
        if self.args.should_save:
            torch.save(state, os.path.join(folder, OPTIMIZER_NAME))
            torch.save(self.lr_scheduler.state_dict(), os.path.join(folder, SCHEDULER_NAME))

    def load_sharded_state(self, folder: str) -> None:
        state = torch.load(os.path.join(folder, OPTIMIZER_NAME), map_location="cpu", weights_only=True)
        self.optimizer.load_state_dict(sharded_state(state, self.optimizer.param_groups))
        self.lr_scheduler.load_state_dict(torch.load(os.path.join(folder, SCHEDULER_NAME), weights_only=True))

    def load_sharded_weights(self, folder: str) -> None:
        load_weights(self.model, read_weights(folder))


def shard_on_cpus(state: Any) -> bool:
    """Sets up FSDP in an `AcceleratorState` where the launcher asks for it; accelerate 1.15 does that on GPUs alone."""
    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() != "true":
        return False
    state.distributed_type = DistributedType.FSDP
    state.fsdp_plugin = FullyShardedDataParallelPlugin()
    if state.mixed_precision != "no":
        state.fsdp_plugin.set_mixed_precision(state.mixed_precision)
    return True


def check_torch(found: TorchVersion) -> None:
    """Look at the release of torch that is to shard.

    Raises:
        ValueError: its FSDP2 gives some weights another gradient than one process does (2.8, 2.9), or lacks what is
            called here (2.7).
    """
    if found < OLDEST_TORCH:
        raise ValueError(
            f"torch {found} is too old for FSDP2: pip install --upgrade 'torch>={OLDEST_TORCH}', or train without FSDP"
        )


@contextlib.contextmanager
def embeddings_in_the_root(model: Any) -> Iterator[None]:
    """Lets accelerate leave embeddings and output layer in the root's shard.

    It would shard those of `get_input_embeddings` and `get_output_embeddings` by themselves. But a tied matrix cannot
    be in two shards, and the loss reads the output layer's matrix without calling the layer.
    """
    model.get_input_embeddings = model.get_output_embeddings = lambda: None
    try:
        yield
    finally:
        del model.get_input_embeddings, model.get_output_embeddings


@contextlib.contextmanager
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


def gather_shards(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all processes; collective where it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


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
    if not paths:
        raise FileNotFoundError(f"{folder} holds no model.safetensors; resume from a checkpoint that is complete")
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


def sharded_state(state: dict[str, Any], groups: list[Mapping[str, Any]]) -> dict[str, Any]:
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
    local = value.to(parameter.device)
    return distribute_tensor(local, parameter.device_mesh, parameter.placements, src_data_rank=None)
