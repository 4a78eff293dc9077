"""Translation: ours, stock `generate` and CTranslate2, in turns in one run.

CTranslate2 computes in each precision that it has on this CPU, the others in float32. Ours and CTranslate2 take batches
of 1,024 source positions, sorted by length; stock takes 32 sentences in the order of the file. The shapes have random
weights and take --steps decoder steps for every sentence. Loading and a first batch are not counted. --model measures
a trained stock model too, and --check compares the translations of so many sentences with ours. Machines are shared and
noisy: compare the ratios.

    python -m training.benchmarks.translation_speed --data path/to/multi30k
    python -m training.benchmarks.translation_speed --data path/to/multi30k --model runs/mine/standard --check 500
    python -m training.benchmarks.translation_speed --toy --rounds 1
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from admin_nmt import AdminConfig, AdminForConditionalGeneration, Translator
from admin_nmt.data.tokenization.byte_bpe import train_tokenizer
from admin_nmt.metrics.scores import bleu
from admin_nmt.system.markdown import table_text
from admin_nmt.weights.exporting import export_standard
from training.benchmarks.common import (
    LANGUAGES,
    Results,
    alone,
    column,
    corpus,
    lines,
    one_round,
    options,
    seconds,
    spread,
)  # fmt: skip
from training.benchmarks.training_speed import Shape

SHAPES = {"6-6": Shape(6, 6, 512, 2048, 8), "18-6": Shape(18, 6, 128, 256, 4)}
TOY = {"1-1": Shape(1, 1, 16, 32, 2)}
BASE, OURS, STOCK_BATCH = "stock", "ours", 32


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
    return [BASE, OURS, *(f"CTranslate2 {name}" for name in types)]


def build(system: str, case: Case) -> Callable[[list[str]], list[str]]:
    """The function that translates with a system."""
    if system == "stock":
        return stock(case)
    engine, _, precision = system.partition(" ")
    options: dict[str, Any] = {"batch_tokens": case.max_tokens, "num_beams": case.num_beams}
    options |= {"dtype": case.dtype} if engine == OURS else {"backend": "ctranslate2", "compute_type": precision}
    if case.steps:  # the end of the sentence takes the last of the steps
        options |= {"min_new_tokens": case.steps - 1, "max_new_tokens": case.steps - 1}
    translator = Translator.from_pretrained(case.folder, device=case.device, **options)
    return translator.translate


def stock(case: Case) -> Callable[[list[str]], list[str]]:
    """Marian as transformers runs it, in the order of the sentences."""
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


def measure(system: str, case: Case) -> dict[str, Any]:
    """Seconds, CPU seconds of all threads, and growth of the peak memory in MB, of translating all sentences."""
    memory = peak_memory()
    translate = build(system, case)
    translate(case.sentences[:STOCK_BATCH])
    cpu, taken = time.process_time(), seconds(translate, case.sentences)
    return {"seconds": taken, "cpu_seconds": time.process_time() - cpu, "memory_mb": peak_memory() - memory}


def peak_memory() -> float:
    """MB that this process held at most, as Linux counts it (getrusage would begin with the parent's)."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024


def translations(system: str, case: Case) -> list[str]:
    """The translations of all sentences."""
    return build(system, case)(case.sentences)


def random_model(shape: Shape, texts: list[str], folder: Path, vocab_size: int) -> str:
    """A stock Marian folder with random weights and a vocabulary of the training text."""
    tokenizer = train_tokenizer(texts, vocab_size)
    torch.manual_seed(0)
    config = AdminConfig(variant="post_ln", vocab_size=len(tokenizer), **shape.fields())
    export_standard(AdminForConditionalGeneration(config), tokenizer, folder)
    return str(folder)


def compare(case: Case, references: list[str]) -> list[list[Any]]:
    """How many translations of each system are ours, and their BLEU, at beam 1 and 5."""
    rows = []
    for beams in (1, 5):
        texts = {system: alone(translations, system, replace(case, num_beams=beams)) for system in systems()}
        for system, found in texts.items():
            same = sum(a == b for a, b in zip(found, texts[OURS], strict=True))
            rows.append([beams, system, f"{same} of {len(found)}", f"{bleu(found, references)['bleu']:.2f}"])
    return rows


def measure_model(case: Case, title: str, rounds: int) -> dict[str, dict[str, list[Any]]]:
    """Of each system its rounds, below the name of the model."""
    names = systems()
    alone(translations, names[-1], replace(case, sentences=case.sentences[:1]))  # converts it for CTranslate2
    found = [one_round(names, number, measure, case) for number in range(rounds)]
    return {title: {system: [one[system] for one in found] for system in names}}


def table(results: Results) -> str:
    """Sentences a second and memory, and how many times those of stock."""
    rows, count = [], results.settings["sentences"]
    for case in results.cases.values():
        for title, systems in case["value"].items():
            rounds = [dict(zip(systems, runs, strict=True)) for runs in zip(*systems.values(), strict=True)]
            times, memory = ({one: column(rounds, one, key) for one in systems} for key in ("seconds", "memory_mb"))
            for system in systems:
                cells = [spread(times[BASE], times[system]), f"{count / median(times[system]):.1f}"]
                cells += [spread(memory[system], memory[BASE]), f"{median(memory[system]):,.0f}"]
                rows.append([title, system, *cells])
    head = ["model", "system", "times stock", "sentences a second", "memory, times stock", "MB"]
    return table_text(head, rows)


def main(arguments: list[str] | None = None) -> None:
    """Measure what is left, and print the tables."""
    parser = options(__doc__)
    parser.add_argument("--model", type=Path, help="folder of a trained stock model, measured as well")
    parser.add_argument("--shape", nargs="*", help="among 6-6 and 18-6, or none; default: both")
    parser.add_argument("--sentences", type=int, default=300, help="so many from the start of the test set")
    parser.add_argument("--num-beams", type=int, default=5, help="beam size")
    parser.add_argument("--steps", type=int, default=15, help="decoder steps of a sentence under random weights")
    parser.add_argument("--check", type=int, default=0, help="compare the trained model's translations of so many")
    args = parser.parse_args(arguments)
    if args.check and not args.model:
        parser.error("--check needs a trained model; name its folder with --model")
    count, known = 4 if args.toy else args.sentences, TOY if args.toy else SHAPES
    settings = {"corpus": corpus(args), "sentences": count, "num_beams": args.num_beams, "steps": args.steps}
    results = Results.open(args, "decoding", settings)
    sentences, references = (
        lines(args, side, "test_2016_flickr", "test", count=max(count, args.check)) for side in LANGUAGES
    )
    with TemporaryDirectory() as temporary:
        os.environ["HF_HOME"] = temporary  # of the processes that measure: where models are converted
        texts = [line for side in LANGUAGES for line in lines(args, side, "train", count=29_000)]
        for name in known if args.shape is None else args.shape:
            folder = random_model(known[name], texts, Path(temporary) / name, 400 if args.toy else 8000)
            case = Case(folder, sentences[:count], args.num_beams, args.steps)
            results.measure(name, measure_model, case, f"random, {name} d {known[name].d_model}", args.rounds)
        if args.model:
            case = Case(str(args.model), sentences[:count], args.num_beams)
            results.measure(str(args.model), measure_model, case, f"trained, {args.model}", args.rounds)
    print(table(results))
    if args.check:
        case, head = Case(str(args.model), sentences[: args.check]), ["beam", "system", f"same as {OURS}", "BLEU"]
        print("\n" + table_text(head, compare(case, references[: args.check])))


if __name__ == "__main__":
    main()
