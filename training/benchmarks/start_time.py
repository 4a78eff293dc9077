"""Time from launch to what a command answers: `admin-nmt translate --text`, `--help`, and imports.

From the launch of Python to the first line of the answer (to the end where there is none), with a model of random
weights in a stock folder; less is better. *translation with transformers alone* is a program of six lines that loads
the same model with `AutoModelForSeq2SeqLM` and translates the same text. All programs run in turns, with whatever
number of threads they take by themselves, after a first round that may read from the disk.

    python -m training.benchmarks.start_time
    python -m training.benchmarks.start_time --toy --rounds 1
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

from admin_nmt import AdminConfig, AdminForConditionalGeneration
from admin_nmt.data.tokenization.byte_bpe import train_tokenizer
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.system.markdown import table_text
from admin_nmt.weights.exporting import standard_model
from training.benchmarks.common import Results, column, options, spread
from training.benchmarks.training_speed import Shape

TRANSLATE, BASE = "admin-nmt translate --text", "translation with transformers alone"
STEPS = 15  # of a translation under random weights
STOCK = f"""
import sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=False)
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], trust_remote_code=False)
ids = model.generate(**tokenizer([sys.argv[2]], return_tensors="pt"), num_beams=5, max_new_tokens={STEPS})
print(tokenizer.batch_decode(ids, skip_special_tokens=True)[0])
"""


def make_model(shape: Shape, vocab_size: int, folder: Path) -> str:
    """Write a stock model of random weights, whose translations have 15 tokens at most; gives a text for it."""
    draw = Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(4, 10))) for _ in range(2 * vocab_size)]
    tokenizer = train_tokenizer((" ".join(words[start : start + 20]) for start in range(0, len(words), 20)), vocab_size)
    config = AdminConfig(variant="post_ln", vocab_size=len(tokenizer), **shape.fields())
    model = standard_model(AdminForConditionalGeneration(config))
    model.generation_config.update(max_new_tokens=STEPS, max_length=None)
    model.save_pretrained(folder)
    save_tokenizers(folder, tokenizer, positions=model.config.max_position_embeddings)
    return " ".join(words[:8]).capitalize() + "."


def programs(model: str, text: str) -> dict[str, list[str]]:
    """The arguments of Python for each program."""
    imports = ("import torch", "import torch, transformers", "from transformers import MarianMTModel")
    return {
        "Python alone": ["-c", "pass"],
        "import admin_nmt": ["-c", "import admin_nmt"],
        "admin-nmt --help": ["-m", "admin_nmt", "--help"],
        **{line: ["-c", line] for line in imports},
        BASE: ["-c", STOCK, model, text],
        TRANSLATE: ["-m", "admin_nmt", "translate", model, "--text", text],
    }


def launch(arguments: Sequence[str]) -> dict[str, float]:
    """Seconds to the first line on stdout and to the end, and CPU seconds of all threads, of Python's run."""
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


def measure(shape: Shape, vocab_size: int, rounds: int) -> list[dict[str, dict[str, float]]]:
    """Rounds of all programs, by their names."""
    with TemporaryDirectory() as folder:
        text = make_model(shape, vocab_size, Path(folder))
        found = [
            {name: launch(arguments) for name, arguments in programs(folder, text).items()} for _ in range(rounds + 1)
        ]
    return found[1:]


def table(results: Results) -> str:
    """Seconds to the answer and of the CPU, and how many times those of the stock program."""
    (rounds,), rows = (case["value"] for case in results.cases.values()), []
    for name in rounds[0]:
        cells = []
        for key in ("answer_seconds", "cpu_seconds"):
            own = column(rounds, name, key)
            cells += [spread(own, column(rounds, BASE, key)), f"{median(own):.2f}"]
        rows.append([name, *cells])
    head = ["program", f"time, times {BASE}", "seconds", f"CPU time, times {BASE}", "CPU seconds"]
    return table_text(head, rows)


def main(arguments: list[str] | None = None) -> None:
    """Measure what is left, and print the table."""
    args = options(__doc__).parse_args(arguments)
    shape, vocab_size = (Shape(1, 1, 16, 64, 1), 400) if args.toy else (Shape(6, 6, 512, 2048, 8), 32_000)
    settings = {"layers": shape.encoder_layers, "d_model": shape.d_model, "vocab_size": vocab_size}
    results = Results.open(args, "start", settings)
    results.measure("programs", measure, shape, vocab_size, args.rounds)
    print(table(results))


if __name__ == "__main__":
    main()
