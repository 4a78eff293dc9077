"""Time from launch to what a command answers: `admin-nmt translate` with a text, `--help`, and imports.

The model has random weights and is made for the purpose; its folder is a stock one, as that of a finished run is.
Every program is a process of its own, all of them in turns, with whatever number of threads they take by themselves.
Python alone, and programs that import what every program with a model imports, tell how much of the time is not ours; a
stock program translates the same text with transformers alone. A first round, which may read from the disk, is not
counted.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from .. import AdminConfig, AdminForConditionalGeneration
from ..data.tokenization.byte_bpe import save_tokenizers, train_tokenizer
from ..model.sublayers import of_both_stacks
from ..system.markdown import table_text
from ..weights.exporting import standard_model

TRANSLATE = "admin-nmt translate --text"
STEPS = 15  # of a translation under random weights
STOCK = f"""
import sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=False)
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], trust_remote_code=False)
ids = model.generate(**tokenizer([sys.argv[2]], return_tensors="pt"), num_beams=5, max_new_tokens={STEPS})
print(tokenizer.batch_decode(ids, skip_special_tokens=True)[0])
"""


@dataclass(frozen=True)
class StartBenchmark:
    """What is measured.

    Args:
        rounds: measurements of each program; the table shows their median.
        layers: of the encoder, and so many of the decoder.
        d_model: width; the feed-forward networks are four times as wide.
        vocab_size: of the joint vocabulary, at most 40,000.
        output: folder of start.json and start.md.
    """

    rounds: int = 5
    layers: int = 6
    d_model: int = 512
    vocab_size: int = 32_000
    output: str = "model_cards/benchmark"


def made_up_words(count: int) -> list[str]:
    """Different words of two to five syllables."""
    draw, words = Random(0), dict[str, None]()
    while len(words) < count:
        syllables = (draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(draw.randint(2, 5)))
        words["".join(syllables)] = None
    return list(words)


def make_model(args: StartBenchmark, folder: Path) -> str:
    """Write a stock model of random weights, whose translations have 15 tokens at most; gives a text for it."""
    words = made_up_words(2 * args.vocab_size)
    lines = (" ".join(words[start : start + 20]) for start in range(0, len(words), 20))
    tokenizer = train_tokenizer(lines, args.vocab_size)
    heads = max(1, args.d_model // 64)
    stacks = of_both_stacks(layers=args.layers, ffn_dim=4 * args.d_model, attention_heads=heads)
    ids = {"pad_token_id": tokenizer.pad_token_id, "decoder_start_token_id": tokenizer.pad_token_id}
    sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "d_model": args.d_model} | stacks | ids
    model = standard_model(AdminForConditionalGeneration(AdminConfig(variant="post_ln", **sizes)))
    model.generation_config.update(max_new_tokens=STEPS, max_length=None)
    model.save_pretrained(folder)
    save_tokenizers(folder, tokenizer, positions=model.config.max_position_embeddings)
    return " ".join(words[:8]).capitalize() + "."


def programs(model: str, text: str) -> dict[str, list[str]]:
    """The arguments of Python for each program."""
    ours = ["-m", "admin_nmt"]
    return {
        "Python alone": ["-c", "pass"],
        "import admin_nmt": ["-c", "import admin_nmt"],
        "admin-nmt --help": [*ours, "--help"],
        "import torch": ["-c", "import torch"],
        "import torch, transformers": ["-c", "import torch, transformers"],
        "from transformers import MarianMTModel": ["-c", "from transformers import MarianMTModel"],
        "translation with transformers alone": ["-c", STOCK, model, text],
        TRANSLATE: [*ours, "translate", model, "--text", text],
    }


def launch(arguments: Sequence[str]) -> dict[str, float]:
    """Run Python with these arguments.

    Returns:
        Seconds from the launch to the first line on stdout (`answer_seconds`; to the end where there is none) and to
        the end (`seconds`), and the CPU seconds of all threads (`cpu_seconds`).

    Raises:
        RuntimeError: the program failed.
    """
    cpu, start = os.times(), time.perf_counter()
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        answered = time.perf_counter()
        _, errors = process.communicate()
    end, after = time.perf_counter(), os.times()
    if process.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} failed: {errors.decode(errors='replace')[-2000:]}")
    used = after.children_user + after.children_system - cpu.children_user - cpu.children_system
    return {"answer_seconds": answered - start, "seconds": end - start, "cpu_seconds": used}


def measure_round(model: str, text: str) -> dict[str, dict[str, float]]:
    """One measurement of every program, by its name, as [`launch`] gives it."""
    return {name: launch(arguments) for name, arguments in programs(model, text).items()}


def start_table(rounds: Sequence[dict[str, dict[str, float]]]) -> str:
    """The medians over rounds, and what share of our translation each program takes, as a Markdown table."""
    rows = []
    for name in rounds[0]:
        wall, end, cpu = ([one[name][key] for one in rounds] for key in ("answer_seconds", "seconds", "cpu_seconds"))
        share = median(one[name]["cpu_seconds"] / one[TRANSLATE]["cpu_seconds"] for one in rounds)
        rows.append([name, f"{share:.2f}", f"{median(cpu):.2f}", f"{median(wall):.2f}", f"{median(end):.2f}"])
    head = [
        "program",
        "share of the CPU time of translate",
        "CPU seconds",
        "seconds to the answer",
        "seconds to the end",
    ]
    return table_text(head, rows) + "\n"


def run_start_benchmark(args: StartBenchmark) -> dict[str, Any]:
    """Measure all programs in turn; start.json and start.md hold what is there so far, and the former is returned."""
    output = Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    rounds: list[dict[str, dict[str, float]]] = []
    facts: dict[str, Any] = {"arguments": asdict(args), "cores": os.cpu_count(), "python": sys.version.split()[0]}
    facts |= {library: version(library) for library in ("torch", "transformers")} | {"rounds": rounds}
    with TemporaryDirectory() as folder:
        text = make_model(args, Path(folder))
        measure_round(folder, text)
        for _ in range(args.rounds):
            rounds.append(measure_round(folder, text))
            (output / "start.json").write_text(json.dumps(facts, indent=1) + "\n")
            (output / "start.md").write_text(start_table(rounds))
    print(start_table(rounds), end="")
    return facts
