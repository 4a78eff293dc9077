"""Translation speed of several systems, alternating in one run: ours, stock `generate`, and CTranslate2.

Sentences of test_2016, beam 5. "Ours" computes in the precision that it chooses, "ours float32" in that one, and
CTranslate2 in each that it has on this CPU. Ours and CTranslate2 take batches of `max_tokens` source positions, sorted
by length; stock takes 32 sentences in the order of the file. The shapes have random weights and take `steps` decoder
steps for every sentence in all systems; a trained model ends where it likes. Each measurement is a process of its own,
with the same number of threads for all: torch's intra-op threads, or CTranslate2's as
`ctranslate2_backend.thread_layout` divides them. Loading and a first batch are not counted. `--check` compares the
translations of a trained model with ours in float32, at beam 1 and 5. Machines are shared and noisy: compare the
ratios, each the median over rounds of neighbours in time. CPU use is the CPU time of all threads over the time that
they had.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel, PreTrainedModel

from admin_nmt import AdminConfig, AdminForConditionalGeneration, Translator

from ..data.parallel_text import read_lines
from ..data.tokenization.byte_bpe import train_tokenizer
from ..decoding import ctranslate2_backend
from ..metrics.scores import bleu
from ..system.errors import refusing_code
from ..system.markdown import table_text
from ..weights.exporting import export_standard
from .processes import alone
from .training_speed import Shape

SHAPES = {
    "6-6": Shape(6, 6, 512, 2048, 8, 0),
    "18-6": Shape(18, 6, 128, 256, 4, 0),
    "4-4": Shape(4, 4, 128, 256, 4, 0),
    "30-6": Shape(30, 6, 256, 1024, 4, 0),
    "1-1": Shape(1, 1, 16, 32, 2, 0),
}
BASE, EXACT = "CTranslate2 float32", "ours float32"
SYSTEMS = ("stock", EXACT, "ours", BASE, "CTranslate2 int8")
STOCK_BATCH = 32
# What a search spends its time on, by the operators of torch that do it.
WORK = {
    "linear layers": ("mkldnn::_linear_pointwise", "aten::addmm", "aten::mm"),
    "products of attention": ("aten::bmm", "aten::baddbmm", "aten::_scaled_dot_product_flash_attention_for_cpu"),
    "softmax": ("aten::_softmax",),
    "log-softmax of the vocabulary": ("aten::_log_softmax",),
    "choice of the best": ("aten::topk", "aten::amax", "aten::gather", "aten::sort"),
}


@dataclass
class TranslationBenchmark:
    """What is measured.

    Args:
        data: folder of Multi30k: train.*.gz, and test_2016_flickr.*.gz to translate.
        model: folder of a trained stock model, measured as well.
        source: sentences to translate instead of test_2016.
        target: their references, for the BLEU of `check`.
        shapes: among `SHAPES`, or none.
        rounds: measurements of each system; 0 to check alone.
        sentences: so many from the start of the file.
        num_beams: beam size.
        steps: decoder steps of a sentence under random weights.
        max_tokens: source positions of a batch of ours and of CTranslate2.
        threads: of each system.
        check: compare the model's translations of so many sentences.
        output: folder of the results.
    """

    data: str
    model: str | None = None
    source: str | None = None
    target: str | None = None
    shapes: list[str] = field(default_factory=lambda: ["6-6", "18-6"])
    rounds: int = 3
    sentences: int = 1000
    num_beams: int = 5
    steps: int = 15
    max_tokens: int = 1024
    threads: int = field(default_factory=torch.get_num_threads)
    check: int = 0
    output: str = "model_cards/benchmark"


@dataclass
class Case:
    """A model folder and what is done with it; `steps` is None where sentences end by themselves.

    `dtype` is that of torch's weights; CTranslate2 has its own in the name of the system.
    """

    folder: str
    cache: str
    sentences: list[str]
    num_beams: int
    steps: int | None
    max_tokens: int
    threads: int
    device: str = "cpu"
    dtype: str = "float32"
    stock_batch: int = STOCK_BATCH


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
            batch = batch.to(case.device)
            ids = model.generate(**batch, num_beams=case.num_beams, early_stopping=case.num_beams > 1, **steps)
            texts += tokenizer.batch_decode(ids, skip_special_tokens=True)
        return texts

    return translate


def ours(case: Case, **engine: Any) -> Callable[[list[str]], list[str]]:
    """`Translator`; the end of sentence takes the last of the steps."""
    ctranslate2_backend.CACHE = Path(case.cache)
    options: dict[str, Any] = {"batch_tokens": case.max_tokens, "num_beams": case.num_beams} | engine
    if case.steps:
        options |= {"min_new_tokens": case.steps - 1, "max_new_tokens": case.steps - 1}
    translator = Translator.from_pretrained(case.folder, device=case.device, **options)
    if isinstance(translator.model, PreTrainedModel):
        translator.model.to(getattr(torch, case.dtype))
    return translator.translate


def build(system: str, case: Case) -> Callable[[list[str]], list[str]]:
    """The function that translates with a system."""
    if system == "stock":
        return stock(case)
    engine, _, precision = system.partition(" ")
    if engine == "ours":
        return ours(case, dtype=precision or None)
    return ours(case, backend="ctranslate2", compute_type=precision)


def systems() -> list[str]:
    """Those that this machine can run, in the order in which they are measured."""
    import ctranslate2

    bfloat16 = "bfloat16" in ctranslate2.get_supported_compute_types("cpu")
    return [*SYSTEMS, *(["CTranslate2 bfloat16"] if bfloat16 else [])]


def measure(system: str, case: Case) -> dict[str, Any]:
    """Seconds, CPU seconds of all threads, and growth of the peak memory in MB, of translating all sentences.

    Of ours also `shares`, what its CPU time is spent on.
    """
    torch.set_num_threads(case.threads)
    memory = peak_memory()
    translate = build(system, case)
    translate(case.sentences[:STOCK_BATCH])
    start, cpu = time.perf_counter(), time.process_time()
    translate(case.sentences)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    found: dict[str, Any] = {"seconds": seconds, "cpu_seconds": cpu, "memory_mb": peak_memory() - memory}
    return found | ({"shares": shares(translate, case.sentences)} if system == "ours" else {})


def shares(translate: Callable[[list[str]], list[str]], sentences: list[str]) -> dict[str, float]:
    """The share of each of `WORK` in the CPU time of operators on one thread; the rest is that of all others."""
    torch.set_num_threads(1)
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        translate(sentences)
    times = {event.key: event.self_cpu_time_total for event in profiler.key_averages()}
    return {what: sum(times.get(name, 0.0) for name in names) / sum(times.values()) for what, names in WORK.items()}


def peak_memory() -> float:
    """MB that this process held at most, as Linux counts it (getrusage would begin with the parent's)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def translations(system: str, case: Case) -> list[str]:
    """What a system makes of the sentences."""
    torch.set_num_threads(case.threads)
    return build(system, case)(case.sentences)


def random_model(name: str, args: TranslationBenchmark, folder: Path) -> Path:
    """A stock Marian folder of a shape, with random weights and a vocabulary of the training data."""
    lines = (line for side in ("en", "de") for line in read_lines(Path(args.data) / f"train.{side}.gz"))
    tokenizer = train_tokenizer(lines, 8000)
    torch.manual_seed(0)
    config = AdminConfig(variant="post_ln", vocab_size=len(tokenizer), **SHAPES[name].fields())
    export_standard(AdminForConditionalGeneration(config), tokenizer, folder)
    return folder


def compare(
    args: TranslationBenchmark, folder: str, cache: str, sentences: list[str], references: list[str]
) -> list[dict]:
    """How many translations of each system are ours, and their BLEU, at beam 1 and 5."""
    rows = []
    for beams in (1, 5):
        case = Case(folder, cache, sentences, beams, None, args.max_tokens, args.threads)
        texts = {system: alone(translations, system, case) for system in systems()}
        for system, found in texts.items():
            same = sum(a == b for a, b in zip(found, texts[EXACT], strict=True))
            score = bleu(found, references)["bleu"] if references else None
            rows.append({"num_beams": beams, "system": system, "same": same, "of": len(found), "bleu": score})
    return rows


def speed_table(results: dict[str, dict[str, list[dict[str, float]]]], count: int, threads: int) -> str:
    """Sentences a second, ratios to stock and to CTranslate2, use of the threads and memory as a Markdown table."""
    head = ["model", "system", "sentences a second", f"times {BASE}", "times stock", "CPU use", "peak memory, MB"]
    rows = []
    for name, measured in results.items():
        for system, runs in measured.items():
            ratios = [
                median(other["seconds"] / own["seconds"] for other, own in zip(measured[base], runs, strict=True))
                for base in (BASE, "stock")
            ]
            speed, memory = count / median(r["seconds"] for r in runs), median(r["memory_mb"] for r in runs)
            use = median(r["cpu_seconds"] / r["seconds"] / threads for r in runs)
            times = [f"{ratio:.2f}" for ratio in ratios]
            rows.append([name, system, f"{speed:.1f}", *times, f"{use:.0%}", f"{memory:,.0f}"])
    return table_text(head, rows) + "\n"


def check_table(rows: list[dict[str, Any]]) -> str:
    """The comparison as a Markdown table."""
    lines = []
    for row in rows:
        score = "" if row["bleu"] is None else f"{row['bleu']:.2f}"
        lines.append([row["num_beams"], row["system"], f"{row['same']} of {row['of']}", score])
    return table_text(["beam", "system", f"same as {EXACT}", "BLEU"], lines) + "\n"


def run_translation_benchmark(args: TranslationBenchmark) -> None:
    """Check and measure all systems in turn; translation.json and translation.md hold what is there so far."""
    if unknown := set(args.shapes) - set(SHAPES):
        raise ValueError(f"--shape: {min(unknown)!r} is not one of {', '.join(SHAPES)}")
    model = args.model or ""
    if args.check and not model:
        raise ValueError("--check: needs a trained model; name its folder with --model")
    sentences, references = test_set(args)
    output = Path(args.output)
    output.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {"arguments": asdict(args) | {"data": "Multi30k En-De"}, "threads": args.threads}
    facts |= {library: version(library) for library in ("torch", "transformers", "ctranslate2")}
    facts |= {"runs": {}, "check": []}
    part = sentences[: args.sentences]
    with TemporaryDirectory() as temporary:
        cache = f"{temporary}/cache"
        if args.check:
            facts["check"] = compare(args, model, cache, sentences[: args.check], references)
            save(facts, output, len(part))
        for name in filter(None, [*args.shapes, model] if args.rounds else []):
            folder = name if name == model else random_model(name, args, Path(temporary) / name)
            steps = None if name == model else args.steps
            case = Case(str(folder), cache, part, args.num_beams, steps, args.max_tokens, args.threads)
            alone(translations, SYSTEMS[-1], Case(**vars(case) | {"sentences": part[:1]}))  # converts the model
            runs: dict[str, list[dict[str, float]]] = {system: [] for system in systems()}
            facts["runs"][title(name, folder)] = runs
            for number in range(args.rounds):
                for system in runs:
                    runs[system].append(alone(measure, system, case))
                    speed = len(part) / runs[system][-1]["seconds"]
                    print(f"{name} round {number + 1}: {system} {speed:.1f} sentences a second", flush=True)
                save(facts, output, len(part))
    print((output / "translation.md").read_text(), end="")


def test_set(args: TranslationBenchmark) -> tuple[list[str], list[str]]:
    """The sentences to translate, and the references of those to check, if there are any."""
    test = Path(args.data) / "test_2016_flickr.en.gz"
    sentences = list(read_lines(args.source or test))[: max(args.sentences, args.check)]
    target = args.target if args.source else test.with_name("test_2016_flickr.de.gz")
    return sentences, list(read_lines(target))[: args.check] if target else []


def title(name: str, folder: str | Path) -> str:
    """A shape, or the shape of a trained model, as the table names it."""
    model = MarianMTModel.config_class.from_pretrained(folder)
    kind = f"random, {name}" if name in SHAPES else f"trained, {model.encoder_layers}-{model.decoder_layers}"
    return f"{kind} d {model.d_model}"


def save(facts: dict[str, Any], folder: Path, count: int) -> None:
    """Write what is there so far."""
    (folder / "translation.json").write_text(json.dumps(facts, indent=1) + "\n")
    tables = [speed_table(facts["runs"], count, facts["threads"])] if facts["runs"] else []
    tables += [check_table(facts["check"])] if facts["check"] else []
    (folder / "translation.md").write_text("\n".join(tables))
