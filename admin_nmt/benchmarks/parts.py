"""Time and peak memory of the parts that cost most: the loss of a large vocabulary, and DLCL on a deep stack.

Each case runs alone in a process of its own, on the GPU where there is one, in turns; the table shows the median step
after a first one, and the growth of the peak memory, the GPU's or the process's. Compare the ratios: machines are
shared and noisy.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.trainer_pt_utils import LabelSmoother

from admin_nmt import AdminConfig, AdminForConditionalGeneration

from ..reports.markdown import table_lines
from ..runs.results import peak_memory
from ..trainer.allocator import keep_freed_memory
from .stopwatch import synchronize

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENGTH, ROUNDS, STEPS = 16, 2, 2
STACK = {"encoder_attention_heads": 8, "decoder_attention_heads": 8, "dropout": 0.1, "max_position_embeddings": 512}
BASE = STACK | {
    "d_model": 512,
    "encoder_ffn_dim": 2048,
    "decoder_ffn_dim": 2048,
    "encoder_layers": 6,
    "decoder_layers": 6,
}
DEEP = STACK | {
    "d_model": 256,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "encoder_layers": 30,
    "decoder_layers": 1,
}
COMPARISONS = {
    "loss, 6-6 d 512, V 40,000, 3,584 tokens": ("LabelSmoother", "LabelSmoother, plain malloc", "chunked"),
    "DLCL, 30-1 d 256, V 1,000, 4,096 tokens": ("pre_ln", "dlcl_pre_ln", "dlcl_stacked"),
}


def batch(vocab_size: int, tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(1, vocab_size - 1, (tokens // LENGTH, LENGTH)).to(DEVICE)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def label_smoother() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """Stock Marian with what Seq2SeqTrainer does for `label_smoothing_factor`."""
    token_ids = {"pad_token_id": 39_999, "decoder_start_token_id": 39_999}
    model = MarianMTModel(MarianConfig(**BASE, vocab_size=40_000, **token_ids, activation_function="relu")).train()
    model = model.to(DEVICE)
    smoother, data = LabelSmoother(0.1), batch(40_000, 3584)
    labels = data.pop("labels")
    data["decoder_input_ids"] = labels.roll(1, 1)

    def loss() -> torch.Tensor:
        output: Seq2SeqLMOutput = model(**data)
        return smoother(output, labels)

    return model, loss


def admin(variant: str, vocab_size: int, tokens: int, shape: dict) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """Our model and its own loss."""
    config = AdminConfig(variant=variant, vocab_size=vocab_size, **shape)
    model = AdminForConditionalGeneration._from_config(config, attn_implementation="eager").train().to(DEVICE)
    data = batch(vocab_size, tokens)
    return model, lambda: model(**data).loss


def stacked() -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """DLCL that stacks all outputs at every layer, as a plain implementation does."""
    from ..model import dlcl

    dlcl._sum_in_one_buffer = dlcl._plain_sum
    return admin("dlcl_pre_ln", 1000, 4096, DEEP)


CASES: dict[str, Callable[[], tuple[nn.Module, Callable[[], torch.Tensor]]]] = {
    "LabelSmoother": label_smoother,
    "LabelSmoother, plain malloc": label_smoother,
    "chunked": lambda: admin("post_ln", 40_000, 3584, BASE),
    "pre_ln": lambda: admin("pre_ln", 1000, 4096, DEEP),
    "dlcl_pre_ln": lambda: admin("dlcl_pre_ln", 1000, 4096, DEEP),
    "dlcl_stacked": stacked,
}


def measure(case: str) -> dict[str, float]:
    """Median seconds of a step and GB of peak memory beyond what was there before the first one."""
    torch.manual_seed(0)
    if not case.endswith("plain malloc"):  # a stock trainer leaves the allocator's settings alone
        keep_freed_memory()
    model, loss = CASES[case]()
    before = peak_memory(DEVICE)
    seconds = []
    for _ in range(STEPS + 1):
        start = time.perf_counter()
        loss().backward()
        synchronize(DEVICE)
        seconds.append(time.perf_counter() - start)
        model.zero_grad()
    return {"seconds": median(seconds[1:]), "gigabytes": (peak_memory(DEVICE) - before) / 2**30}


def measure_alone(case: str) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", __name__, case]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def run_parts_benchmark(folder: Path) -> None:
    """Measure all cases in turn and leave parts.md in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for line in table_lines(["comparison", "case", "seconds", "memory, GB", "time ratio", "memory ratio"], _rows()):
        print(line, flush=True)
        lines.append(line)
    (folder / "parts.md").write_text("\n".join(lines) + "\n")


def _rows() -> Iterator[list[str]]:
    for comparison, cases in COMPARISONS.items():
        results: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
        for _ in range(ROUNDS):
            for case in cases:
                results[case].append(measure_alone(case))
        medians = {case: {k: median(r[k] for r in runs) for k in runs[0]} for case, runs in results.items()}
        first = medians[cases[0]]
        for case, values in medians.items():
            ratios = [f"{values[k] / first[k]:.2f}" for k in ("seconds", "gigabytes")]
            yield [comparison, case, f"{values['seconds']:.2f}", f"{values['gigabytes']:.2f}", *ratios]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
