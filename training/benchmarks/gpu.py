"""Check and measure on a GPU, in calls of minutes, what a card with little time should tell first.

Tests; updates of 6-6 and 60-12; memory of the WMT shape; an update profiled; compiled layers and master weights;
attention; trainings of the grid gpu-msdocs; an evaluation; searches; then the rest. Each result is a file
OUTPUT/steps/NAME.json, written as it comes; a call runs steps until its minutes are used up, and the same command goes
on. Exit code 0: every step has its result; 1: some are left. A step that fails leaves its error, and --redo failed
tries such steps again. README.md in OUTPUT shows what is there.

    python -m training.benchmarks.gpu --data path/to/msdocs --prepare      # what needs no GPU
    python -m training.benchmarks.gpu --data path/to/msdocs
    python -m training.benchmarks.gpu --toy --output /tmp/toy              # on a CPU
"""

import argparse
import gc
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product, takewhile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.autograd import DeviceType
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback, set_seed

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments
from admin_nmt.data.batching import TokenBatchSampler
from admin_nmt.data.tokenized_pairs import pair_lengths
from admin_nmt.experiments.grid_runner import last_line, run_all, wanted_runs
from admin_nmt.experiments.grids import Grid, load_grid
from admin_nmt.experiments.tables import flat, outcome, write_tables
from admin_nmt.metrics.unigram import write_unigram
from admin_nmt.runs.memory_table import model_config
from admin_nmt.runs.preparation import Prepared, prepare
from admin_nmt.runs.recipe import Recipe, load_recipe
from admin_nmt.runs.results import commit, device_name
from admin_nmt.runs.training_run import build_model, build_trainer, training_arguments
from admin_nmt.system.files import json_text, new_folder, write_text_whole
from admin_nmt.system.markdown import table_text
from admin_nmt.system.processes import start_processes
from admin_nmt.trainer.memory_prediction import BatchShape, predict_memory, worst_shape
from admin_nmt.trainer.process_memory import let_segments_grow, peak_memory
from admin_nmt.weights.exporting import export_standard
from training.benchmarks import step_cost
from training.benchmarks.common import DEVICE, Timing, seconds, synchronize, versions
from training.benchmarks.flops import peak_flops, update_flops
from training.benchmarks.translation_speed import Case, build

ROOT = Path(__file__).parents[2]
GRID, WMT = ROOT / "training/grids/gpu-msdocs.yaml", ROOT / "training/recipes/wmt14-en-de-60-12.yaml"
PATIENCE = 40.0  # seconds that a step gets to stop when the call ends; a grid gives its runs 30
Fields = dict[str, Any]
Words = Sequence[str]
# Every step in its order: what a card with little time should tell first. A name has the kind of step, one of
# [`KINDS`], and what its function reads: mostly depth, tokens of a micro-batch and words of [`FIELDS`].
ORDER = """
data tests
updates-60-12-4k updates-60-12-16k updates-60-12-57k updates-6-6-4k updates-6-6-16k updates-6-6-57k
wmt-128x28 wmt-14x250 wmt-2048x28
profile-60-12-4k profile-60-12-4k-master
updates-60-12-16k-compiled updates-60-12-16k-master updates-60-12-16k-compiled-master
attention-4k attention-57k
train-post_ln-60-12 train-admin-60-12 train-post_ln-18-18 train-admin-18-18
evaluation-60-12-4k evaluation-60-12-16k evaluation-60-12-57k
search-6-6-ours-bfloat16 search-6-6-ours-float16 search-6-6-ours-float32
search-60-12-ours-bfloat16 search-60-12-ours-float16 search-60-12-ours-float32
predict-60-12-4k predict-60-12-16k predict-60-12-57k predict-6-6-4k predict-6-6-16k predict-6-6-57k
predictwmt-128x28 predictwmt-14x250 predictwmt-2048x28
loss-4k loss-57k
updates-18-18-4k updates-18-18-16k updates-18-18-57k
updates-60-12-4k-checkpointing updates-60-12-16k-checkpointing updates-60-12-57k-checkpointing
updates-6-6-4k-workers updates-60-12-4k-workers updates-60-12-4k-parts updates-60-12-4k-parts-auto
updates-60-12-4k-cudnn updates-60-12-16k-cudnn updates-60-12-4k-eager
updates-6-6-4k-float32 updates-60-12-4k-float32 updates-6-6-4k-tf32 updates-60-12-4k-tf32
updates-6-6-16k-compiled updates-18-18-16k-compiled
train-post_ln-6-6 train-admin-6-6 train-pre_ln-6-6 train-pre_ln-18-18 train-pre_ln-60-12
search-6-6-stock-bfloat16 search-6-6-stock-float32 search-6-6-CTranslate2-float16 search-6-6-CTranslate2-float32
search-60-12-stock-bfloat16 search-60-12-stock-float32 search-60-12-CTranslate2-float16
search-60-12-CTranslate2-float32
"""
NAMES = ORDER.split()
SIZES = {"4k": 4096, "16k": 16384, "57k": 57344}  # tokens of a micro-batch
FIELDS: dict[str, Fields] = {  # of a recipe, by the words in a step's name
    "master": {"training.bf16": False, "training.master_weights": True},
    "compiled": {"training.compile_layers": True},
    "checkpointing": {"training.activation_checkpointing": True},
    "workers": {"training.dataloader_num_workers": 2, "training.dataloader_persistent_workers": True},
    "parts": {"training.gradient_accumulation_steps": 14},
    "auto": {"training.auto_micro_batch": True},
    "cudnn": {"training.cudnn_attention": True},
    "eager": {"model.attn_implementation": "eager"},
    "float32": {"training.bf16": False},
    "tf32": {"training.bf16": False, "training.tf32": True},
}
TOY = {  # any CPU does it in seconds
    "model.d_model": 16, "model.encoder_ffn_dim": 32, "model.decoder_ffn_dim": 32, "model.encoder_attention_heads": 2,
    "model.decoder_attention_heads": 2, "model.encoder_layers": 2, "model.decoder_layers": 1, "training.bf16": False,
    "training.max_tokens": 2048, "training.max_steps": 6, "training.warmup_steps": 2, "training.logging_steps": 2,
    "training.eval_steps": 3, "training.save_steps": 3, "training.eval_bleu_sentences": 20, "evaluation.num_beams": 2,
    "tokenizer.vocab_size": 400, "training.tf32": None,
}  # fmt: skip
PHRASEBOOK = {"data.builtin": "phrasebook"} | dict.fromkeys(("data.train", "data.valid", "data.test", "data.root"))
QUIET = {
    "training.eval_strategy": "no", "training.save_strategy": "no", "training.logging_strategy": "no",
    "training.disable_tqdm": True,
}  # fmt: skip
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION, "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH,
}  # fmt: skip


@dataclass(frozen=True)
class Setup:
    """Folder of the results, folder of msdocs (None: the built-in phrasebook), and whether it is a trial."""

    output: Path
    data: Path | None = None
    toy: bool = False

    def overrides(self, changed: Fields) -> list[str]:
        """Fields of a recipe or grid as its command line takes them; at toy size the small ones win."""
        places = {"data.cache_dir": str(self.output / "cache"), "output_dir": str(self.output / "runs")}
        text = PHRASEBOOK if self.data is None else {"data.root": str(self.data.absolute())}
        values = places | text | changed | (TOY if self.toy else {})
        return [text for name, value in values.items() for text in (f"--{name}", json.dumps(value))]

    def file(self, name: str) -> Path:
        """The file of a step's result."""
        return self.output / "steps" / f"{name}.json"

    def results(self) -> dict[str, Any]:
        """All results by the names of their steps."""
        return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(self.file("").parent.glob("*.json"))}

    def grid(self) -> Grid:
        """The grid on this data."""
        return load_grid(GRID, self.overrides({}))

    def recipe(self, changed: Fields) -> Recipe:
        """The grid's recipe as post-LN, with some fields changed; output goes to a folder of its own."""
        grid = self.grid()
        own = {"output_dir": str(self.output / "scratch"), "model.variant": "post_ln"}
        return load_recipe(grid.recipe, self.overrides(dict(grid.overrides) | QUIET | own | changed))

    def prepared(self) -> Prepared:
        """The tokenised data, from the cache after the first call."""
        start_processes()
        return prepare(self.recipe({}))


class TimedTrainer(Timing, AdminTrainer):
    """A trainer with a stopwatch."""


class ProfileLast(TrainerCallback):
    """A profile of the last update."""

    def __init__(self) -> None:
        self.profiler = profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (DEVICE.type == "cuda"))

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == state.max_steps - 1:
            synchronize()
            self.profiler.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == state.max_steps:
            synchronize()
            self.profiler.stop()


def fields_of(words: Words) -> Fields:
    """Fields of the recipe by depth, tokens and words of [`FIELDS`]."""
    encoder, decoder, size, *changes = words
    fields: Fields = {"model.encoder_layers": int(encoder), "model.decoder_layers": int(decoder)}
    fields["training.max_tokens"] = SIZES[size]
    for change in changes:
        fields |= FIELDS[change]
    return fields


def some_batches(pairs: Dataset, max_tokens: int, count: int) -> Dataset:
    """The pairs of `count` batches of an epoch's plan, from the shortest to the longest sentences, evenly spaced."""
    plan = TokenBatchSampler(*pair_lengths(pairs), max_tokens, seed=0).batches
    chosen = np.unique(np.linspace(0, len(plan) - 1, count).astype(int))
    return pairs.select(np.concatenate([plan[index] for index in chosen]))


def shapes_of(pairs: Dataset, max_tokens: int) -> list[BatchShape]:
    """Shapes of the batches planned for these pairs."""
    source, target = pair_lengths(pairs)
    batches = TokenBatchSampler(source, target, max_tokens, seed=0).batches
    return [BatchShape(len(batch), int(source[batch].max()), int(target[batch].max())) for batch in batches]


def new_trainer(setup: Setup, words: Words, batches: int) -> TimedTrainer:
    """A trainer for two passes over some batches of the data, which writes nothing."""
    recipe, prepared = setup.recipe(fields_of(words)), setup.prepared()
    args = training_arguments(recipe)
    count = 2 if setup.toy else batches * args.gradient_accumulation_steps
    part = some_batches(prepared.data["train"], args.max_tokens, count)
    args.max_steps = 2 * math.ceil(len(shapes_of(part, args.max_tokens)) / args.gradient_accumulation_steps)
    set_seed(args.seed)
    model = build_model(recipe, prepared)
    return TimedTrainer(model, args, train_dataset=part, processing_class=prepared.source_tokenizer)


def measured(trainer: TimedTrainer, warm_up: int) -> Fields:
    """Train; speed, utilisation and memory of the updates after the warm-up."""
    reset_peak()
    trainer.time_training(warm_up)
    config, args = trainer.model.config, trainer.args
    flops = update_flops(config, trainer.shapes) / trainer.seconds
    peak = peak_flops(device_name(DEVICE)) if args.bf16 or args.master_weights else None
    return {
        "attention": config._attn_implementation,
        "shapes": len(set(trainer.shapes)),
        "first pass, s": trainer.first_seconds,
        "ms an update": 1000 * trainer.seconds / (args.max_steps - warm_up),
        "target tokens/s": trainer.target_tokens_per_second,
        "TFLOP/s": flops / 1e12,
        "MFU": flops / peak if peak else None,
        "allocated, GB": peak_memory(DEVICE) / 1e9,
        "held, GB": torch.cuda.max_memory_reserved(DEVICE) / 1e9 if DEVICE.type == "cuda" else None,
    }


def reset_peak() -> None:
    """Begin to count the peak of the GPU's memory."""
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats(DEVICE)


def prepare_data(setup: Setup, words: Words) -> Fields:
    """Tokenise the data into the cache, which needs no GPU."""
    return {split: len(part) for split, part in setup.prepared().data.items()}


def run_tests(setup: Setup, words: Words) -> Fields:
    """The tests that need a GPU: how many passed, failed and were skipped, and which failed."""
    files = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-m", "gpu", "-p", "no:cacheprovider", "--tb=short"]
    device = {} if DEVICE.type == "cuda" else {"ADMIN_NMT_TEST_DEVICE": "cpu"}
    done = subprocess.run(
        [*command, "-q", "-rf", *files[: 1 if setup.toy else None]],
        cwd=ROOT, env=os.environ | device, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    print(done.stdout)
    if not (found := re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)):
        raise RuntimeError(f"pytest ended with exit code {done.returncode} before any test; see the log")
    failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    counts = dict.fromkeys(("passed", "failed", "skipped", "error"), 0) | {name: int(count) for count, name in found}
    return counts | {"failures": ", ".join(failures)}


def measure_updates(setup: Setup, words: Words) -> Fields:
    """Time and memory of the second of two passes over the same batches; the first meets every shape."""
    trainer = new_trainer(setup, words, batches=20)
    return measured(trainer, trainer.args.max_steps // 2)


def predict_updates(setup: Setup, words: Words) -> Fields:
    """The memory that is predicted for the same batches; needs no GPU."""
    recipe, prepared = setup.recipe(fields_of(words)), setup.prepared()
    args, attention = training_arguments(recipe), recipe.model.attn_implementation
    config = AdminConfig(vocab_size=len(prepared.source_tokenizer), **recipe.model.configuration())
    shapes = shapes_of(some_batches(prepared.data["train"], args.max_tokens, 20), args.max_tokens)
    largest = {max(shapes, key=lambda s: s.sentences * max(s.source, s.target) ** power) for power in (1, 2)}
    shape = worst_shape(config, args, sorted(largest, key=str), attention)
    memory = predict_memory(config, args, shape, attention)
    return {"largest batch": str(shape), "predicted, GB": max(memory.step, memory.update) / 1e9}


def wmt(setup: Setup, words: Words) -> tuple[AdminConfig, AdminTrainingArguments, BatchShape]:
    """WMT's 60-12 recipe, V and dropouts included, with micro-batches of one shape."""
    sentences, length = map(int, words[0].split("x"))
    recipe = load_recipe(WMT, setup.overrides(QUIET | {"evaluation.average_last": 1}))
    args = training_arguments(recipe)
    args.max_tokens, args.gradient_accumulation_steps, args.max_steps = sentences * length, 1, 3
    return model_config(recipe), args, BatchShape(sentences, length, length)


def measure_wmt(setup: Setup, words: Words) -> Fields:
    """Two updates of WMT's 60-12 after a first one, on random ids."""
    config, args, shape = wmt(setup, words)
    ids = np.random.default_rng(0).integers(3, config.vocab_size - 1, (2, 3 * shape.sentences, shape.source))
    ids[:, :, -1] = 0  # </s>
    pairs = {"input_ids": ids[0].tolist(), "labels": ids[1].tolist()}
    pairs |= dict.fromkeys(("source_length", "target_length"), [shape.source] * ids.shape[1])
    model = AdminForConditionalGeneration(config)
    return measured(TimedTrainer(model, args, train_dataset=Dataset.from_dict(pairs)), warm_up=1)


def predict_wmt(setup: Setup, words: Words) -> Fields:
    """The memory that is predicted for it; needs no GPU."""
    memory = predict_memory(*wmt(setup, words))
    return {"predicted, GB": max(memory.step, memory.update) / 1e9}


def profile_update(setup: Setup, words: Words) -> list[Fields]:
    """One update under torch.profiler: its kernels, the time that they and the host take, and the top operators."""
    trainer, watched = new_trainer(setup, words, batches=5), ProfileLast()
    trainer.add_callback(watched)
    trainer.time_training(warm_up=0)
    # Annotations span many kernels, and the averages have a row for each kernel beside that of its operator.
    events = [event for event in watched.profiler.events() if not event.is_user_annotation]
    kernels = [event.time_range.elapsed_us() for event in events if event.device_type != DeviceType.CPU]
    operators = [row for row in watched.profiler.key_averages() if row.device_type == DeviceType.CPU]
    key = "self_device_time_total" if kernels else "self_cpu_time_total"
    wall = max(event.time_range.end for event in events) - min(event.time_range.start for event in events)
    host = sum(row.self_cpu_time_total for row in operators)
    rows = [(f"all, {wall / 1e3:.1f} ms by the clock", len(kernels), sum(kernels), host)]
    for row in sorted(operators, key=lambda row: getattr(row, key), reverse=True)[:20]:
        rows.append((row.key[:80], row.count, getattr(row, key), row.self_cpu_time_total))
    names = ("operator", "calls", "device, ms", "host, ms")
    return [dict(zip(names, (*row[:2], row[2] / 1e3, row[3] / 1e3), strict=True)) for row in rows]


def measure_attention(setup: Setup, words: Words) -> list[Fields]:
    """Milliseconds, forward and backward, of a first and of later calls over real shapes, by backend and kind."""
    tokens = 256 if setup.toy else SIZES[words[0]]
    shapes = shapes_of(some_batches(setup.prepared().data["train"], tokens, 2 if setup.toy else 20), tokens)
    backends = {"chosen by torch": list(BACKENDS.values())} | {name: [one] for name, one in BACKENDS.items()}
    rows: list[Fields] = []
    for kind, (name, allowed) in product(("encoder", "decoder", "cross"), backends.items()):
        rows.append({"kind": kind, "backend": name})
        try:
            with sdpa_kernel(allowed):
                times = [list(attention_times(shape, kind)) for shape in shapes]
            first, later = (1000 * sum(map(part, times)) for part in (lambda own: own[0], median))
            rows[-1] |= {"first calls, ms": first, "later, ms": later}
        except RuntimeError as error:
            rows[-1] |= {"first calls, ms": str(error).partition("\n")[0][:100], "later, ms": None}
    return rows


def attention_times(shape: BatchShape, kind: str, calls: int = 6) -> Iterator[float]:
    """Seconds of each call on random queries, keys and values [B, 8, length, 64] in bfloat16.

    "encoder" and "cross" mask a quarter of every other source by [B, 1, 1, S], as the model does; "decoder" is causal.
    """
    queries = shape.source if kind == "encoder" else shape.target
    keys = shape.target if kind == "decoder" else shape.source
    query, key, value = (
        torch.randn(shape.sentences, 8, length, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
        for length in (queries, keys, keys)
    )
    mask = torch.ones(shape.sentences, 1, 1, shape.source, dtype=torch.bool, device=DEVICE)
    mask[1::2, ..., shape.source - shape.source // 4 :] = False
    options: Fields = {"is_causal": True} if kind == "decoder" else {"attn_mask": mask}

    def both_passes() -> None:
        output = scaled_dot_product_attention(query, key, value, **options)
        torch.autograd.grad(output, (query, key, value), output.detach())

    return (seconds(both_passes) for _ in range(calls))


def train_system(setup: Setup, words: Words) -> Fields:
    """One run of the grid, continued from its last checkpoint.

    Raises:
        RuntimeError: it failed; a run that diverged has not.
    """
    grid, prepared = setup.grid(), setup.prepared()
    (run,) = wanted_runs(grid, ["-".join(words)], grid.seeds[:1])
    write_unigram(prepared.data, len(prepared.target_tokenizer), grid.output_dir)
    if run.results() is None:
        run_all([run], 1, [sys.executable], lambda run: outcome(run.results()))
    if (results := run.results()) is None:
        raise RuntimeError(f"{run.folder / 'train.log'}: {last_line(run)}")
    write_tables(grid)
    row = flat(results)
    return {name: row[name] for name in ("status", "updates", "valid_nll", "bleu", "minutes", "peak_memory_gb")}


def measure_evaluation(setup: Setup, words: Words) -> Fields:
    """Time and peak memory of an evaluation during training, beam search included."""
    recipe = setup.recipe(fields_of(words))
    trainer = build_trainer(recipe, setup.prepared(), training_arguments(recipe))
    reset_peak()
    return {"seconds": seconds(trainer.evaluate), "allocated, GB": peak_memory(DEVICE) / 1e9}


def measure_search(setup: Setup, words: Words) -> list[Fields]:
    """Sentences a second by beam and batch, on a model of random weights, after the same sentences once.

    Ours and CTranslate2 take as many source positions as stock's batches hold on average, sorted by length.
    """
    encoder, decoder, system, dtype = words
    prepared, folder = setup.prepared(), setup.output / "models" / f"{encoder}-{decoder}"
    if not folder.is_dir():
        recipe = setup.recipe({"model.encoder_layers": int(encoder), "model.decoder_layers": int(decoder)})
        set_seed(1)
        with new_folder(folder) as temporary:
            export_standard(build_model(recipe, prepared), prepared.source_tokenizer, temporary)
    test, rows = prepared.data["test"], []
    count, steps = (4, 3) if setup.toy else (512, 30)
    sentences, mean = (test["source"][:] * count)[:count], sum(test["source_length"]) / len(test)
    of_torch, name = ("float32", f"{system} {dtype}") if system == "CTranslate2" else (dtype, system)
    for beams, batch in product((1, 5), (32, 256)):
        case = Case(str(folder), sentences, beams, steps, round(batch * mean), DEVICE.type, of_torch, batch)
        translate = build(name, case)
        translate(sentences)
        reset_peak()
        speed = count / seconds(translate, sentences)
        memory = None if system == "CTranslate2" else peak_memory(DEVICE) / 1e9  # which has an allocator of its own
        rows.append({"beam": beams, "sentences a batch": batch, "sentences/s": speed, "allocated, GB": memory})
    return rows


def measure_loss(setup: Setup, words: Words) -> list[Fields]:
    """A step with our loss and with LabelSmoother, at WMT's vocabulary."""
    whole = step_cost.Comparison("", step_cost.LOSSES, 44_512, SIZES[words[0]], (6, 6), 512)
    sizes = step_cost.TOY["loss"] if setup.toy else whole
    return [{"system": system} | step_cost.measure(system, sizes, 0) for system in ("LabelSmoother", "chunked")]


KINDS: dict[str, tuple[Callable[[Setup, Words], Any], float]] = {  # with the seconds that they take, about
    "data": (prepare_data, 60), "tests": (run_tests, 120), "updates": (measure_updates, 25), "wmt": (measure_wmt, 20),
    "profile": (profile_update, 30), "attention": (measure_attention, 60), "train": (train_system, 60),
    "evaluation": (measure_evaluation, 30), "search": (measure_search, 40), "predict": (predict_updates, 60),
    "predictwmt": (predict_wmt, 60), "loss": (measure_loss, 20),
}  # fmt: skip
ON_CPU, RESUMED = ("data", "predict"), ("data", "train")  # the kinds that need no GPU; that go on in the next call


def about(setup: Setup, name: str) -> float:
    """Seconds that a step takes; it does not start where less is left, except as the first of a call."""
    usual = KINDS[name.partition("-")[0]][1] * (4 if "compiled" in name or "parts" in name else 1)
    return usual / 20 if setup.toy else usual


def process_of(name: str) -> str:
    """Neighbours of one process import and load once: those of a kind and depth; TF32 outlives a trainer."""
    kind, *words = name.split("-")
    deep = kind in ("updates", "profile", "predict", "evaluation")
    return "-".join([kind, *(words[:2] if deep else []), *(words if "tf32" in words else [])])


class TimeIsUp(Exception):
    """Raised in a step by the alarm clock."""


def ring(number: int, frame: Any) -> None:
    """Stop the step."""
    raise TimeIsUp


def run_steps(setup: Setup, names: Sequence[str], end: float) -> None:
    """Do steps one after the other in this process, and leave each result or the error that was raised."""
    signal.signal(signal.SIGALRM, ring)
    for name in names:
        kind, *words = name.split("-")
        start, limit = time.time(), 5 * about(setup, name) + 60
        if name != names[0] and end - start < about(setup, name):
            return
        print(f"== {name}", flush=True)
        last = kind in RESUMED or end - start < limit
        signal.setitimer(signal.ITIMER_REAL, max(1.0, end - start if last else limit))
        try:
            facts: Fields = {"result": KINDS[kind][0](setup, words)}
        except TimeIsUp:
            if last:  # the next call begins with it
                return
            facts = {"error": "stopped: it took too long"}
        except Exception as error:  # whatever a step raises is its result, out of memory among them
            traceback.print_exc()
            facts = {"error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:500]}"}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        write_result(setup, name, time.time() - start, facts)
        gc.collect()
        torch.compiler.reset()
        if DEVICE.type == "cuda":
            torch.cuda.empty_cache()


def write_result(setup: Setup, name: str, taken: float, facts: Fields) -> None:
    """Leave a step's `result` or `error`, with what it was measured on."""
    known = {"device": device_name(DEVICE), "cuda": torch.version.cuda, "versions": versions(), "commit": commit()}
    row = {"seconds": taken, **facts, **known, "date": time.strftime("%F %T")}
    write_text_whole(setup.file(name), json_text(row, indent=1) + "\n")


def call(setup: Setup, names: Sequence[str], command: Sequence[str], limit: float) -> list[str]:
    """Run what is left of the steps for so many seconds, in a process a group; gives what is still left."""
    end, first = time.time() + limit, True
    while left := [name for name in names if not setup.file(name).is_file()]:
        start = time.time()
        if end - start < (1 if first else about(setup, left[0])):
            break
        group = list(takewhile(lambda name: process_of(name) == process_of(left[0]), left))
        ended, first = None, False
        with (setup.output / "log.txt").open("a") as log:
            done = [*command, "--end", str(end), "--do", *group]
            with suppress(subprocess.TimeoutExpired):
                ended = subprocess.run(done, stdout=log, stderr=log, timeout=end - start + PATIENCE, check=False)
        missing = [name for name in group if not setup.file(name).is_file()]
        if missing and (ended is None or ended.returncode):
            how = f"ended with exit code {ended.returncode}" if ended else "stopped: it did not end with the call"
            write_result(setup, missing[0], time.time() - start, {"error": f"{how}; see log.txt"})
        results = setup.results()
        for name in group:
            if name in results:
                print(f"{name}: {results[name].get('error', 'done')} ({results[name]['seconds']:.0f} s)", flush=True)
    return left


def cell(value: Any) -> str:
    """A value in a table: four digits, a dash for nothing."""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return "–" if value is None else str(value).replace("|", "\\|")


def page(results: Fields, toy: bool) -> str:
    """A table of every kind of step, of whatever results there are."""
    done = {name: results[name]["result"] for name in NAMES if "result" in results.get(name, {})}
    left = [name for name in NAMES if name not in results]
    failed = [[name, cell(one["error"])] for name, one in results.items() if "error" in one]
    machines = Counter(
        (one["device"], one["cuda"], one["versions"]["torch"], one["commit"]) for one in results.values()
    )
    head = ["device", "CUDA", "torch", "commit", "steps"]
    parts = [
        "# Measured on a GPU" + ", at toy size: the numbers mean nothing" * toy,
        table_text(head, [map(cell, (*row, count)) for row, count in machines.items()]),
        f"{len(done)} of {len(NAMES)} steps done, {len(failed)} failed. Left: {', '.join(left) or 'none'}.",
    ]
    if failed:
        parts.append(table_text(["failed step", "error"], failed))
    for kind, (function, _) in KINDS.items():
        own = {name: result for name, result in done.items() if name.split("-")[0] == kind}
        rows = [
            {"step": name} | row
            for name, result in own.items()
            for row in (result if isinstance(result, list) else [result])
        ]
        if rows:
            text = (function.__doc__ or "").partition("\n\n")[0]
            parts += [f"## {kind}", text, table_text(list(rows[0]), [map(cell, row.values()) for row in rows])]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run what is left for some minutes, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of msdocs: train.en.gz, ...; default: the phrasebook")
    parser.add_argument("--output", type=Path, default=Path("gpu-results"), help="folder of results, data and runs")
    parser.add_argument("--minutes", type=float, default=9, help="of this call; a step may take longer to stop")
    parser.add_argument("--prepare", action="store_true", help="only the steps that need no GPU")
    parser.add_argument("--toy", action="store_true", help="tiny models, to try all steps on a CPU")
    parser.add_argument("--only", nargs="+", default=[""], help="steps whose names begin so")
    parser.add_argument("--redo", nargs="+", default=[], help="steps to run again, or `failed`")
    parser.add_argument("--do", nargs="+", help=argparse.SUPPRESS)  # the process of these steps
    parser.add_argument("--end", type=float, help=argparse.SUPPRESS)  # of the call
    args = parser.parse_args(arguments)
    setup = Setup(args.output, args.data, args.toy)
    if args.do:
        let_segments_grow()  # as a training does, before anything asks for memory
        if args.toy:  # a compiler takes longer than a trial should
            torch.compiler.set_stance("force_eager")
        run_steps(setup, args.do, args.end)
        return 0
    (setup.output / "steps").mkdir(parents=True, exist_ok=True)
    for name, one in setup.results().items():
        if name in args.redo or ("failed" in args.redo and "error" in one):
            setup.file(name).unlink()
    chosen = [name for name in NAMES if name.startswith(tuple(args.only))]
    chosen = [name for name in chosen if name.startswith(ON_CPU) or not args.prepare]
    options = ["--output", str(args.output), *(["--data", str(args.data)] if args.data else []), *["--toy"] * args.toy]
    left = call(setup, chosen, [sys.executable, "-m", "training.benchmarks.gpu", *options], 60 * args.minutes)
    write_text_whole(setup.output / "README.md", page(setup.results(), args.toy))
    print(f"{setup.output / 'README.md'}: {len(left)} steps are left{'; the same command goes on' if left else ''}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
