"""Updates of the trainer on real batches: tokens a second, memory, model FLOP utilisation, and one update profiled."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback

from admin_nmt import AdminConfig, AdminTrainer

from ...data.batching import TokenBatchSampler
from ...data.tokenizing import pair_lengths
from ...runs.building import build_trainer, training_arguments
from ...runs.preparation import Prepared
from ...runs.recipe import Recipe
from ...runs.results import device_name
from ...trainer import compilation
from ...trainer.memory_prediction import BatchShape, predict_memory, worst_shape
from ...trainer.peak_memory import peak_memory
from ..stopwatch import Stopwatch, synchronize
from .flops import peak_flops, update_flops
from .gpu_setup import Setup

TOY_TOKENS = 256  # of a batch
TOP = 20  # operators of the profile


@dataclass(frozen=True)
class UpdateCase:
    """What is trained, and how.

    Args:
        encoder_layers, decoder_layers: depth.
        max_tokens: token budget of a batch.
        precision: "bf16" or "fp16" under autocast, "master_weights" in bfloat16 without it, "float32", or "tf32",
            which are float32 with shorter products.
        checkpointing: keep the activations of no layer but the first of so many; 0 keeps all.
        compiled: torch.compile of the whole model, loss included.
        compile_layers: of the layers alone, one graph a kind.
        accumulation: batches of an update.
        auto_micro_batch: whether the trainer may make an update of fewer and larger batches.
        attention: `attn_implementation`; None for the one that transformers chooses.
        cudnn: whether scaled_dot_product_attention may use cuDNN's kernel, which recipes leave out.
        workers: processes that load batches; 0 for the main process.
        batches: of which each pass consists: one pass to warm up, one that is measured.
    """

    encoder_layers: int
    decoder_layers: int
    max_tokens: int = 4096
    precision: str = "bf16"
    checkpointing: int = 0
    compiled: bool = False
    compile_layers: bool = False
    accumulation: int = 1
    auto_micro_batch: bool = False
    attention: str | None = None
    cudnn: bool = False
    workers: int = 0
    batches: int = 20


def budget(setup: Setup, case: UpdateCase) -> int:
    """Tokens of a batch."""
    return TOY_TOKENS if setup.toy else case.max_tokens


def case_recipe(setup: Setup, case: UpdateCase, **others: Any) -> Recipe:
    """The grid's recipe with what the case changes, and with `others` among the fields of `training`."""
    changed: dict[str, Any] = {f"training.{name}": value for name, value in others.items()} | {
        "model.encoder_layers": setup.depth(case.encoder_layers),
        "model.decoder_layers": setup.depth(case.decoder_layers),
        "model.variant": "post_ln",
        "model.attn_implementation": case.attention,
        "training.max_tokens": budget(setup, case),
        "training.bf16": case.precision == "bf16",
        "training.fp16": case.precision == "fp16",
        "training.master_weights": case.precision == "master_weights",
        "training.activation_checkpointing": case.checkpointing > 0,
        "training.dataloader_num_workers": case.workers,
        "training.dataloader_persistent_workers": case.workers > 0,
        "training.cudnn_attention": case.cudnn,
        "training.torch_compile": case.compiled,
        "training.compile_layers": case.compile_layers,
        "training.gradient_accumulation_steps": case.accumulation,
        "training.auto_micro_batch": case.auto_micro_batch,
        "training.eval_strategy": "no",
        "training.save_strategy": "no",
        "training.logging_strategy": "no",
        "training.disable_tqdm": True,
    }
    if case.checkpointing:
        changed["training.activation_checkpointing_kwargs"] = {"every_n_layers": case.checkpointing}
    if case.compiled and setup.toy:
        changed["training.torch_compile_backend"] = "eager"  # a compiler takes longer than a trial should
    return setup.recipe(changed)


def some_batches(pairs: Dataset, max_tokens: int, count: int) -> Dataset:
    """The pairs of `count` batches of an epoch's plan, from the shortest to the longest sentences, evenly spaced."""
    plan = TokenBatchSampler(*pair_lengths(pairs), max_tokens, seed=0).batches
    chosen = np.unique(np.linspace(0, len(plan) - 1, count).astype(int))
    return pairs.select(np.concatenate([plan[index] for index in chosen]))


def shapes_of(pairs: Dataset, max_tokens: int) -> list[BatchShape]:
    """Of the batches planned for these pairs."""
    source, target = pair_lengths(pairs)
    batches = TokenBatchSampler(source, target, max_tokens, seed=0).batches
    return [BatchShape(len(batch), int(source[batch].max()), int(target[batch].max())) for batch in batches]


def new_trainer(setup: Setup, case: UpdateCase) -> AdminTrainer:
    """A trainer for two passes over some batches, which writes nothing."""
    prepared, tokens = setup.prepared(), budget(setup, case)
    part = some_batches(prepared.data["train"], tokens, case.batches)
    updates = math.ceil(len(shapes_of(part, tokens)) / case.accumulation)
    recipe = case_recipe(setup, case, max_steps=2 * updates)
    data = DatasetDict({"train": part})
    return build_trainer(recipe, Prepared(data, prepared.source_tokenizer, prepared.target_tokenizer, {}))


@contextmanager
def kernels(case: UpdateCase, toy: bool = False) -> Iterator[None]:
    """The settings of torch that a case asks for; layers are compiled in name only at toy size."""
    compiler = compilation.BACKEND
    precision, cudnn = torch.get_float32_matmul_precision(), torch.backends.cuda.cudnn_sdp_enabled()
    torch.set_float32_matmul_precision("high" if case.precision == "tf32" else precision)
    torch.backends.cuda.enable_cudnn_sdp(case.cudnn)
    compilation.BACKEND = "eager" if toy else compiler
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
        compilation.BACKEND = compiler


def measure_updates(setup: Setup, **fields: Any) -> dict[str, Any]:
    """Time and memory of the second of two passes over the same batches; the first meets every shape.

    Returns:
        Among others target tokens a second, bytes that the tensors and the allocator took at most, TFLOP/s of the
        model's products and, where the card is known, their share of its peak.
    """
    case = UpdateCase(**fields)
    with kernels(case, setup.toy):
        trainer = new_trainer(setup, case)
        device = trainer.args.device
        watch = Stopwatch(trainer, warm_up=trainer.args.max_steps // 2)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        trainer.train()
        config: Any = trainer.model.config
        flops = update_flops(config, watch.shapes)
        peak = peak_flops(device_name(device), case.precision)
        facts = asdict(case) | {
            "d_model": config.d_model,
            "parameters": sum(p.numel() for p in trainer.model.parameters()),
            "attention_used": config._attn_implementation,
            "updates": trainer.args.max_steps // 2,
            "batches_measured": len(watch.shapes),
            "max_tokens_used": trainer.args.max_tokens,
            "shapes": len(set(watch.shapes)),
            "target_tokens": watch.tokens,
            "positions": sum(n * (s + t) for n, s, t in watch.shapes),
            "first_seconds": watch.first_seconds,
            "seconds": watch.seconds,
            "tokens_per_second": watch.tokens / watch.seconds,
            "tflops": flops / watch.seconds / 1e12,
            "peak_tflops": None if peak is None else peak / 1e12,
            "mfu": None if peak is None else flops / watch.seconds / peak,
            "allocated": peak_memory(device),
        }
        if device.type == "cuda":
            facts["reserved"] = torch.cuda.max_memory_reserved(device)
        return facts


def predict_updates(setup: Setup, **fields: Any) -> dict[str, Any]:
    """The memory that `memory_prediction` expects of the same batches; needs no GPU."""
    case = UpdateCase(**fields)
    recipe, prepared, tokens = case_recipe(setup, case), setup.prepared(), budget(setup, case)
    shapes = shapes_of(some_batches(prepared.data["train"], tokens, case.batches), tokens)
    config = AdminConfig(vocab_size=len(prepared.source_tokenizer), **recipe.model.configuration())
    args, attention = training_arguments(recipe), recipe.model.attn_implementation
    largest = {
        max(shapes, key=lambda s: s.sentences * (s.source + s.target)),
        max(shapes, key=lambda s: s.sentences * (s.source**2 + s.source * s.target + s.target**2)),
    }
    shape = worst_shape(config, args, sorted(largest, key=str), attention)
    memory = predict_memory(config, args, shape, attention)
    return asdict(case) | {"shape": str(shape), "predicted": max(memory.step, memory.update), "memory": asdict(memory)}


class ProfileUpdate(TrainerCallback):
    """Profiles one update, the last."""

    def __init__(self, device: torch.device) -> None:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self.device, self.profiler = device, profile(activities=activities)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == state.max_steps - 1:
            synchronize(self.device)
            self.profiler.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == state.max_steps:
            synchronize(self.device)
            self.profiler.stop()


def profile_update(setup: Setup, **fields: Any) -> dict[str, Any]:
    """One update under torch.profiler: its kernels, the time that they and Python take, and the top operators."""
    case = UpdateCase(**fields)
    with kernels(case, setup.toy):
        trainer = new_trainer(setup, case)
        watched = ProfileUpdate(trainer.args.device)
        trainer.add_callback(watched)
        trainer.train()
    # Annotations span many kernels, and the averages have a row for each kernel beside that of its operator.
    events = [event for event in watched.profiler.events() if not event.is_user_annotation]
    launched = [event for event in events if event.device_type != DeviceType.CPU]
    averages = [row for row in watched.profiler.key_averages() if row.device_type == DeviceType.CPU]
    key = "self_device_time_total" if launched else "self_cpu_time_total"
    top = sorted(averages, key=lambda row: getattr(row, key), reverse=True)[:TOP]
    spans = [event.time_range for event in events]
    return asdict(case) | {
        "wall_ms": (max(span.end for span in spans) - min(span.start for span in spans)) / 1e3,
        "kernels": len(launched),
        "gpu_ms": sum(event.time_range.elapsed_us() for event in launched) / 1e3,
        "host_ms": sum(row.self_cpu_time_total for row in averages) / 1e3,
        "top": [
            {
                "name": row.key,
                "calls": row.count,
                "ms": getattr(row, key) / 1e3,
                "host_ms": row.self_cpu_time_total / 1e3,
            }
            for row in top
        ],
    }
