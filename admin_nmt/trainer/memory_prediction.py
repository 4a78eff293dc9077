"""Peak memory of a training run, predicted without running it.

One update is made by a model of fake tensors, which have shapes and storages but no memory, under the code that trains;
every storage counts while it lives. So what autograd keeps, what checkpointing drops, copies of autocast and chunks of
logits need no formula. Not counted: workspaces inside a kernel, beam search, a GPU's context and what its allocator
holds beyond the tensors.
"""

import copy
import os
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from datasets import Dataset
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from ..data.tokenized_pairs import longest_sentence, survey
from ..decoding.search.forced_decoding import token_log_probs
from ..model.configuration_admin import AdminConfig
from ..model.modeling_admin import AdminForConditionalGeneration
from ..system.processes import gather_objects
from .arguments import AdminTrainingArguments, enable_checkpointing, optimizer_settings
from .precision_and_attention import computes_in_bfloat16

CONTEXT_BYTES = 800e6  # assumed: what a GPU's driver and libraries take
FRAGMENTATION = 1.1  # assumed: what the allocator of a GPU holds, relative to its tensors


@dataclass(frozen=True)
class BatchShape:
    """A number of pairs, padded to `source` and `target` tokens."""

    sentences: int
    source: int
    target: int

    def __str__(self) -> str:
        return f"{self.sentences} × {self.source}/{self.target}"


@dataclass(frozen=True)
class Memory:
    """Predicted bytes of one process.

    Args:
        parameters: the model at rest, shared weights once, buffers included.
        gradients: those of all parameters.
        optimizer: what the optimizer keeps from update to update.
        activations: what a forward pass leaves for the backward pass.
        step: peak of forward and backward pass.
        update: peak of the optimizer's step.
        evaluation: peak of scoring a batch of the same shape.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    step: int
    update: int
    evaluation: int

    @property
    def peak(self) -> int:
        """The largest of the three phases, in one process."""
        return max(self.step, self.update, self.evaluation)

    def peak_of(self, processes: int) -> int:
        """The peak of each of so many processes: with several, DDP keeps another copy of the gradients to send."""
        return self.peak + self.gradients * (processes > 1)


class LiveStorages(TorchDispatchMode):
    """Counts the bytes of the tensors that are made under it, views once, while they live; `peak` is their maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._sizes: dict[weakref.ref, int] = {}

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is torch.ops.aten.nonzero.default and isinstance(args[0], FakeTensor):
            # What is not padding: a fake tensor has no values, and in the largest batch it is everything.
            result = args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.int64)
        else:
            result = func(*args, **kwargs or {})
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        reference = weakref.ref(storage, self._free)
        if reference not in self._sizes:
            self._sizes[reference] = storage.nbytes()
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)

    def _free(self, reference: weakref.ref) -> None:
        self.live -= self._sizes.pop(reference, 0)

    def restart(self) -> None:
        """Forget the peak so far."""
        self.peak = self.live


def predict_memory(
    config: AdminConfig, args: AdminTrainingArguments, shape: BatchShape, attention: str | None = None
) -> Memory:
    """The memory that a process needs to train a model on batches of a shape.

    Args:
        config: of the model; its `dtype` is that of the parameters.
        args: of the run; what counts are `bf16` and `fp16`, checkpointing, accumulation and the optimizer.
        shape: of a batch.
        attention: the implementation, such as "sdpa" or "eager"; by default the one that transformers chooses.

    Raises:
        ValueError: the arguments ask for what is not predicted: offloaded activations, adversarial training,
            master weights.
    """
    if name := not_predicted(args):
        raise ValueError(f"{name} is set; its memory is not predicted, leave it out")
    with FakeTensorMode(), LiveStorages() as memory:
        model = AdminForConditionalGeneration._from_config(copy.deepcopy(config), attn_implementation=attention).train()
        checkpoint_as_trainer(model, args)
        parameters, gradients = memory.live, sum(p.nbytes for p in model.parameters() if p.requires_grad)
        states, temporaries = (round(gradients * part) for part in optimizer_cost(args, model.dtype))
        batch = full_batch(shape)
        if args.gradient_accumulation_steps > 1:
            for parameter in model.parameters():
                parameter.grad = torch.empty_like(parameter)
        memory.restart()
        before = memory.live
        with autocast(args, model):
            loss = model(**batch, num_items_in_batch=batch["labels"].numel()).loss
        activations = memory.live - before
        loss.backward()
        step = memory.peak + states
        del loss
        model.zero_grad()
        memory.restart()
        batch["decoder_input_ids"] = batch["labels"]
        with torch.no_grad(), autocast(args, model):
            token_log_probs(model.eval(), batch)
        evaluation = memory.peak + states
    update = parameters + gradients + states + temporaries
    return Memory(parameters, gradients, states, activations, step, update, evaluation)


def not_predicted(args: AdminTrainingArguments) -> str | None:
    """Names an argument of a run that makes its memory unknown; None where it can be predicted."""
    settings = args.activation_checkpointing_kwargs or {}
    unknown = {
        "adversarial_weight": args.adversarial_weight,
        "master_weights": args.master_weights,
        "activation_checkpointing_kwargs.offload": args.activation_checkpointing and settings.get("offload"),
    }
    return next((name for name, is_set in unknown.items() if is_set), None)


def checkpoint_as_trainer(model: AdminForConditionalGeneration, args: AdminTrainingArguments) -> None:
    """Recomputes activations as the Trainer does for `activation_checkpointing`."""
    if args.activation_checkpointing:
        settings = args.activation_checkpointing_kwargs or {}
        # There are no random numbers that a second forward pass would have to repeat.
        enable_checkpointing(model, {"use_reentrant": False, "preserve_rng_state": False} | settings)


def full_batch(shape: BatchShape) -> dict[str, Tensor]:
    """A batch without padding; which ids it holds makes no difference."""
    source = torch.zeros(shape.sentences, shape.source, dtype=torch.int64)
    labels = torch.zeros(shape.sentences, shape.target, dtype=torch.int64)
    return {"input_ids": source, "attention_mask": torch.ones_like(source), "labels": labels}


def autocast(args: AdminTrainingArguments, model: AdminForConditionalGeneration) -> torch.autocast:
    """The precision of the forward pass."""
    in_bfloat16 = computes_in_bfloat16(args, model.config)
    return torch.autocast("cpu", torch.bfloat16 if in_bfloat16 else torch.float16, enabled=in_bfloat16 or args.fp16)


def optimizer_cost(args: AdminTrainingArguments, dtype: torch.dtype) -> tuple[float, float]:
    """Memory that the optimizer keeps, and that an update takes besides, relative to the bytes of the parameters.

    Seen in updates of a small real tensor: RAdam takes other steps at first, and chooses them by the value of a tensor.
    """
    kind, settings = optimizer_settings(args)
    with LiveStorages() as memory:
        parameter = nn.Parameter(torch.zeros(1 << 16, dtype=dtype))
        parameter.grad = torch.zeros_like(parameter)
        at_rest, temporaries = memory.live, 0
        optimizer: Any = kind([parameter], **settings)
        for update in range(10):
            memory.restart()
            optimizer.step()
            if update:
                temporaries = max(temporaries, memory.peak - memory.live)
        states = memory.live - at_rest
    return states / parameter.nbytes, temporaries / parameter.nbytes


def largest_shapes(max_tokens: int, longest: int) -> list[BatchShape]:
    """The batches that cost most under a token budget if sentences have up to `longest` tokens.

    One has the longest sentences, the other fills the budget with some that are nearly as long.
    """
    longest = min(longest, max_tokens)
    few = max_tokens // longest
    lengths = {longest, max_tokens // (few + 1)} if max_tokens % longest else {longest}
    return [BatchShape(max_tokens // length, length, length) for length in sorted(lengths) if length]


def planned_shapes(planned: Iterable[tuple[int, int, int]]) -> list[BatchShape]:
    """Among planned batches of these shapes (see [`Survey`]) those of most positions and of most squared lengths."""
    shapes = [BatchShape(*shape) for shape in sorted(planned)]
    most_positions = max(shapes, key=lambda s: s.sentences * (s.source + s.target))
    most_squares = max(shapes, key=lambda s: s.sentences * (s.source**2 + s.source * s.target + s.target**2))
    return list({most_positions, most_squares})


def worst_shape(
    config: AdminConfig, args: AdminTrainingArguments, shapes: list[BatchShape], attention: str | None = None
) -> BatchShape:
    """The shape that needs most memory, judged by a shallow model of the same width."""
    if len(shapes) == 1:
        return shapes[0]
    shallow = copy.deepcopy(config)
    shallow.encoder_layers, shallow.decoder_layers = min(2, config.encoder_layers), min(2, config.decoder_layers)
    return max(shapes, key=lambda shape: predict_memory(shallow, args, shape, attention).step)


def predicted_peak(
    config: AdminConfig,
    args: AdminTrainingArguments,
    planned: Iterable[tuple[int, int, int]],
    attention: str | None = None,
) -> int:
    """Bytes that a process of a run needs at most, in the worst of the planned batches (see [`planned_shapes`])."""
    shape = worst_shape(config, args, planned_shapes(planned), attention)
    return predict_memory(config, args, shape, attention).peak_of(args.world_size)


def free_memory(device: torch.device) -> int:
    """Bytes that a process may still take: of the GPU, or its part of what the machine has."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    return int(psutil.virtual_memory().available) // int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def fits(peak: float, gigabytes: float) -> bool:
    """True if a GPU of this many GB (10⁹ bytes) holds a predicted peak, with margins that are assumed, not measured."""
    return peak * FRAGMENTATION + CONTEXT_BYTES <= gigabytes * 1e9


class RunMemory:
    """Decisions that the memory of a run's devices takes before it begins; the same on every process.

    Args:
        model: to be trained.
        args: of the run.
        dataset: of training.
    """

    def __init__(self, model: PreTrainedModel, args: AdminTrainingArguments, dataset: Dataset) -> None:
        self.model, self.args, self.dataset = model, args, dataset

    def is_predicted(self) -> bool:
        """True if it is known what this run takes, and what there is."""
        known = isinstance(self.model.config, AdminConfig) and self.args.device.type in ("cpu", "cuda")
        return known and not_predicted(self.args) is None

    def holds(self, **changes: Any) -> bool:
        """True if this process has the memory for the run with some of its arguments changed."""
        args = copy.copy(self.args)
        for name, value in changes.items():
            setattr(args, name, value)
        config: Any = self.model.config
        planned = survey(self.dataset, args.max_tokens, seed=args.batch_seed).shapes
        peak = predicted_peak(config, args, planned, config._attn_implementation)
        return fits(peak, free_memory(args.device) / 1e9)

    def needs_checkpointing(self) -> bool:
        """Decides `activation_checkpointing: auto`: False if every process has room without; True if nobody knows.

        A recomputed layer draws the same random numbers, so a run may go on with another choice.
        """
        return not self.is_predicted() or not all(gather_objects(self.holds(activation_checkpointing=False)))

    def micro_batch(self) -> tuple[int, int]:
        """`max_tokens` and accumulation of updates of the same token budget, in the fewest batches that all GPUs hold.

        What is recomputed where checkpointing is "auto" is not: it costs more time than a larger batch saves. The
        budget may be cut into more batches than the arguments ask for, if a GPU is too small for these; it is as they
        say on a CPU, and where no batch is predicted to fit.
        """
        args = self.args
        chosen = args.max_tokens, args.gradient_accumulation_steps
        if not self.is_predicted() or args.device.type != "cuda":
            return chosen
        budget = args.max_tokens * args.gradient_accumulation_steps
        longest = longest_sentence(self.dataset)
        cuts = [parts for parts in range(1, budget // longest + 1) if budget % parts == 0]
        checkpointing = args.activation_checkpointing is True

        def holds(parts: int) -> bool:
            return self.holds(
                max_tokens=budget // parts, gradient_accumulation_steps=parts, activation_checkpointing=checkpointing
            )

        found = bisect_left(cuts, True, key=holds)  # a prediction takes seconds
        return min(gather_objects((budget // cuts[found], cuts[found]) if found < len(cuts) else chosen))
