"""Translation: ours, stock `generate` and CTranslate2, in turns in one run.

"ours" computes in the precision that it chooses, "ours float32" in that one, CTranslate2 in each that it has on this
CPU. Ours and CTranslate2 take batches of --max-tokens source positions, sorted by length; stock takes 32 sentences in
the order of the file. The shapes have random weights and take --steps decoder steps for every sentence. Loading and a
first batch are not counted. --model measures a trained stock model too, and --check compares the translations of so
many sentences with ours in float32. Machines are shared and noisy: compare the ratios.

    python -m training.benchmarks.translation_speed --data path/to/multi30k
    python -m training.benchmarks.translation_speed --data path/to/multi30k --model runs/mine/standard --check 500
    python -m training.benchmarks.translation_speed --toy --rounds 1
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from admin_nmt import AdminConfig, AdminForConditionalGeneration, Translator
from admin_nmt.data.parallel_text import read_lines
from admin_nmt.data.tokenization.byte_bpe import train_tokenizer
from admin_nmt.system.errors import refusing_code
from admin_nmt.weights.exporting import export_standard
from training.benchmarks.common import LANGUAGES, Results, alone, options, ratio, show, text_files
from training.benchmarks.training_speed import Shape

SHAPES = {"6-6": Shape(6, 6, 512, 2048, 8, 0), "18-6": Shape(18, 6, 128, 256, 4, 0)}
TOY = {"1-1": Shape(1, 1, 16, 32, 2, 0)}
BASE, EXACT, STOCK_BATCH = "stock", "ours float32", 32


@dataclass(frozen=True)
class Case:
    """A model folder and what is done with it; `steps` is None where sentences end by themselves.

    `dtype` is that of torch's weights; CTranslate2 has its own in the name of the system.
    """

    folder: str
    sentences: list[str]
    num_beams: int = 5
    steps: int | None = None
    max_tokens: int = 1024
    device: str = "cpu"
    dtype: str = "float32"
    stock_batch: int = STOCK_BATCH


def systems() -> list[str]:
    """Those that this machine can run, in the order in which they are measured."""
    import ctranslate2

    types = [name for name in ("float32", "int8", "bfloat16") if name in ctranslate2.get_supported_compute_types("cpu")]
    return ["stock", EXACT, "ours", *(f"CTranslate2 {name}" for name in types)]


def build(system: str, case: Case) -> Callable[[list[str]], list[str]]:
    """The function that translates with a system."""
    if system == "stock":
        return stock(case)
    engine, _, precision = system.partition(" ")
    options: dict[str, Any] = {"batch_tokens": case.max_tokens, "num_beams": case.num_beams}
    options |= {"dtype": precision or None} if engine == "ours" else {"backend": "ctranslate2", "compute_type": precision}
    if case.steps:  # the end of the sentence takes the last of the steps
        options |= {"min_new_tokens": case.steps - 1, "max_new_tokens": case.steps - 1}
    translator = Translator.from_pretrained(case.folder, device=case.device, **options)
    if isinstance(translator.model, PreTrainedModel) and case.dtype != "float32":
        translator.model.to(getattr(torch, case.dtype))
    return translator.translate


def stock(case: Case) -> Callable[[list[str]], list[str]]:
    """Marian as transformers runs it, in the order of the sentences."""
    with refusing_code(case.folder):
        tokenizer = AutoTokenizer.from_pretrained(case.folder, trust_remote_code=False)
        model = AutoModelForSeq2SeqLM.from_pretrained(case.folder, trust_remote_code=False).eval()
    model = model.to(case.device, getattr(torch, case.dtype))
    longest = model.config.max_position_embeddings - 1
    steps = {"min_new_tokens": case.steps, "max_new_tokens": case.steps} if case.steps else {"max_new_tokens": longest}

    def translate(sentences: list[str]) -> list[str]:
        texts = []
        for start in range(0, len(sentences), case.stock_batch):
            batch = tokenizer(sentences[start : start + case.stock_batch], return_tensors="pt", padding=True)
            ids = model.generate(
                **batch.to(case.device), num_beams=case.num_beams, early_stopping=case.num_beams > 1, **steps
            )
            texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
        return texts

    return translate


def measure(system: str, case: Case, number: int) -> dict[str, Any]:
    """Seconds, CPU seconds of all threads, and growth of the peak memory in MB, of translating all sentences."""
    memory = peak_memory()
    translate = build(system, case)
    translate(case.sentences[:STOCK_BATCH])
    start, cpu = time.perf_counter(), time.process_time()
    translate(case.sentences)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"seconds": seconds, "cpu_seconds": cpu, "memory_mb": peak_memory() - memory}


def peak_memory() -> float:
    """MB that this process held at most, as Linux counts it (getrusage would begin with the parent's)."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def translations(system: str, case: Case) -> list[str]:
    """The translations of all sentences."""
    return build(system, case)(case.sentences)


def random_model(shape: Shape, text: Path, folder: Path, vocab_size: int) -> str:
    """A stock Marian folder with random weights and a vocabulary of the training text."""
    lines = [line for side in LANGUAGES for line in islice(read_lines(text / f"train.{side}.gz"), 29_000)]
    tokenizer = train_tokenizer(lines, vocab_size)
    torch.manual_seed(0)
    config = AdminConfig(variant="post_ln", vocab_size=len(tokenizer), **shape.fields())
    export_standard(AdminForConditionalGeneration(config), tokenizer, folder)
    return str(folder)


def compare(case: Case) -> list[list[Any]]:
    """How many translations of each system are ours in float32, at beam 1 and 5."""
    rows = []
    for beams in (1, 5):
        texts = {system: alone(translations, system, replace(case, num_beams=beams)) for system in systems()}
        for system, found in texts.items():
            rows.append([beams, system, sum(a == b for a, b in zip(found, texts[EXACT], strict=True)), len(found)])
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Measure what is left, and print the tables."""
    parser = options(__doc__, "translation.json")
    parser.add_argument("--data", type=Path, help="folder of train.*.gz and test_2016_flickr.en.gz or test.en.gz")
    parser.add_argument("--model", help="folder of a trained stock model")
    parser.add_argument("--shape", nargs="*", help="among 6-6 and 18-6; default: both")
    parser.add_argument("--sentences", type=int, default=300, help="so many from the start of the test set")
    parser.add_argument("--steps", type=int, default=15, help="decoder steps of a sentence under random weights")
    parser.add_argument("--check", type=int, default=0, help="compare the trained model's translations of so many")
    args = parser.parse_args(arguments)
    if args.check and not args.model:
        parser.error("--check needs a trained model; name its folder with --model")
    text = text_files(args.data, args.output.parent, args.toy)
    test = next(path for name in ("test_2016_flickr", "test") if (path := text / f"{name}.en.gz").is_file())
    sentences = list(islice(read_lines(test), 4 if args.toy else max(args.sentences, args.check)))
    known = TOY if args.toy else SHAPES
    settings = {"data": str(args.data), "toy": args.toy, "sentences": args.sentences, "steps": args.steps}
    results, rows = Results(args.output, settings), []
    with TemporaryDirectory() as temporary:
        cases = {
            f"random, {name} d {known[name].d_model}": Case(
                random_model(known[name], text, Path(temporary) / name, 400 if args.toy else 8000),
                sentences[: args.sentences], steps=args.steps,
            )
            for name in args.shape or known
        }  # fmt: skip
        if args.model:
            cases[f"trained, {args.model}"] = Case(args.model, sentences[: args.sentences])
        for title, case in cases.items():
            found = results.rounds(title, systems(), args.rounds, measure, case)
            seconds = {system: [one["seconds"] for one in runs] for system, runs in found.items()}
            for system, runs in found.items():
                use = median(one["cpu_seconds"] / one["seconds"] / (os.cpu_count() or 1) for one in runs)
                speed, memory = len(case.sentences) / median(seconds[system]), median(one["memory_mb"] for one in runs)
                times = ratio(seconds[BASE], seconds[system])
                rows.append([title, system, times, f"{speed:.1f}", f"{use:.0%}", f"{memory:,.0f}"])
    show("Translation", ["model", "system", f"times {BASE}", "sentences a second", "CPU use", "memory, MB"], rows)
    if args.check:
        checked = compare(Case(args.model, sentences[: args.check]))
        show("Translations", ["beam", "system", f"same as {EXACT}", "of"], checked)
    print(f"\n{args.output}")


if __name__ == "__main__":
    main()
