"""From a recipe to tokenised data: reading, cleaning, vocabulary, tokenising, each step cached."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
from accelerate import PartialState
from datasets import DatasetDict
from filelock import FileLock
from transformers import PreTrainedTokenizerBase

from ..data.cleaning import format_counts
from ..data.corpora import SPLITS, clean_corpora, read_corpora, tokenize
from ..data.mixing import Corpus, mix
from ..data.parallel_text import TEST_SET
from ..distributed import say
from ..files import new_folder
from ..tokenization.byte_bpe import load_tokenizers, save_tokenizers, train_tokenizer, with_tags
from .recipe import BUILTIN, Recipe

Watch = Callable[[str], AbstractContextManager["Step"]]


@dataclass
class Prepared:
    """Tokenised data, tokenizers and the counts of the cleaning."""

    data: DatasetDict
    source_tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase
    counts: dict[str, int]


@dataclass
class Step:
    """A step of the preparation, for whoever watches it."""

    name: str
    pairs: int = 0


@contextmanager
def unwatched(name: str) -> Iterator[Step]:
    """Nobody watches."""
    yield Step(name)


def prepare(recipe: Recipe, num_proc: int | None = None, watch: Watch = unwatched) -> Prepared:
    """Load, clean and tokenise the corpora; every step is cached, and one process of a machine does it first.

    Args:
        num_proc: worker processes; None for one a core.
        watch: a context around each step; the step tells it the number of its pairs.
    """
    cache, root = Path(recipe.data.cache_dir), recipe.data.root
    names = (*SPLITS, "cleaning")
    spec = {name: given for name, given in recipe.data.given().items() if name in names and given is not None}
    options: dict[str, Any] = {"cache_dir": cache, "num_proc": num_proc}
    with PartialState().local_main_process_first():
        if recipe.data.builtin is not None:
            spec |= _write_builtin(recipe.data.builtin, cache)
        if root is not None:
            spec |= {split: _below(root, spec[split]) for split in SPLITS if split in spec}
        with watch("reading") as step:
            training, evaluation = read_corpora(spec, **options)
            step.pairs = sum(len(corpus.pairs) for corpus in training)
        with watch("cleaning") as step:
            training, counts = clean_corpora(training, evaluation, spec, recipe.languages, **options)
            step.pairs = counts["total"]
        say(format_counts(counts))
        with watch("vocabulary") as step:
            source, target = _tokenizers(recipe, training, cache)
            step.pairs = counts["kept"]
        with watch("tokenising") as step:
            ids = options | {"max_length": recipe.data.max_length, "keep_text": False}
            train = [tokenize(c.pairs, source, target, tag=c.share.tag, **ids) for c in training]
            data = {"train": mix(train, [corpus.share.upsample for corpus in training])}
            data |= {split: tokenize(pairs, source, target, **options) for split, pairs in evaluation.items()}
            step.pairs = counts["kept"]
    counts = counts | {"too many tokens": counts["kept"] - sum(map(len, train))}
    say(f"too many tokens {counts['too many tokens']}; vocabulary {len(source)}")
    say(", ".join(f"{split} {len(part)} pairs" for split, part in data.items()))
    return Prepared(DatasetDict(data), source, target, counts)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _below(root: str, corpora: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any] | list[dict[str, Any]]:
    """The corpora with their files below `root`."""

    def below(files: Any) -> Any:
        if isinstance(files, list):
            return [below(file) for file in files]
        return files if files is None or files.startswith(TEST_SET) else str(Path(root) / files)

    sides = ("source", "target")
    found = [corpus | {side: below(corpus[side]) for side in sides if side in corpus} for corpus in _as_list(corpora)]
    return found if isinstance(corpora, list) else found[0]


def _write_builtin(name: str, cache: Path) -> dict[str, dict[str, str]]:
    folder = cache / name
    if PartialState().is_local_main_process:
        BUILTIN[name](folder)
    return {
        split: {"source": str(folder / f"{split}.en"), "target": str(folder / f"{split}.de")}
        for split in ("train", "valid", "test")
    }


def _tokenizers(recipe: Recipe, training: list[Corpus], cache: Path) -> tuple[Any, Any]:
    """Those of `path` or of the model to start from, or new ones, which are kept by what they were trained on."""
    start = recipe.model.from_pretrained
    existing = recipe.tokenizer.path or start
    tags = sorted({corpus.share.tag for corpus in training if corpus.share.tag is not None})
    if existing is not None:
        source, target = load_tokenizers(existing)
        if start is not None:  # whose embeddings have no room for tags
            return source, target
        tagged = with_tags(source, tags)
        return tagged, tagged if target is source else with_tags(target, tags)  # which both end with <pad>
    vocab_size, joint = recipe.tokenizer.vocab_size, recipe.tokenizer.joint
    inputs = [[corpus.pairs._fingerprint for corpus in training], vocab_size, joint, tags]
    folder = cache / f"tokenizer-{sha256(json.dumps(inputs).encode()).hexdigest()[:16]}"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            sides = [[corpus.pairs[side] for corpus in training] for side in ("source", "target")]
            texts = [chain(*sides[0], *sides[1])] if joint else [chain(*side) for side in sides]
            tokenizers = [train_tokenizer(side, vocab_size, tags=tags) for side in texts]
            if len({len(tokenizer) for tokenizer in tokenizers}) > 1:
                sizes = " and ".join(str(len(tokenizer)) for tokenizer in tokenizers)
                raise ValueError(
                    f"tokenizer.vocab_size: the two vocabularies reach {sizes} tokens; choose what both reach"
                )
            with new_folder(folder) as temporary:
                save_tokenizers(temporary, *tokenizers)
    return load_tokenizers(folder)


class Meter:
    """Times the steps of a preparation and watches its memory, on Linux without the pages of mapped files.

    Attributes:
        steps: of each step `step`, `pairs`, `seconds`, `pairs_per_second`, and of all processes `cpu_seconds` and
            `peak_memory_gb`.
    """

    def __init__(self, interval: float = 0.2) -> None:
        self.steps: list[dict[str, Any]] = []
        self.interval = interval

    @contextmanager
    def __call__(self, name: str) -> Iterator[Step]:
        step, peak, done = Step(name), [memory()], threading.Event()

        def sample() -> None:
            while not done.wait(self.interval):
                peak[0] = max(peak[0], memory())

        sampler = threading.Thread(target=sample, daemon=True)
        sampler.start()
        start, used = time.perf_counter(), cpu_seconds()
        try:
            yield step
        finally:
            seconds = time.perf_counter() - start
            done.set()
            sampler.join()
        rate = step.pairs / seconds
        peak_gb = max(peak[0], memory()) / 1e9
        self.steps.append(
            {"step": name, "pairs": step.pairs, "seconds": seconds, "pairs_per_second": rate}
            | {"cpu_seconds": cpu_seconds() - used, "peak_memory_gb": peak_gb}
        )
        say(f"{name}: {step.pairs:,} pairs in {seconds:.1f} s, {rate:,.0f} a second, peak memory {peak_gb:.2f} GB")


def cpu_seconds() -> float:
    """Of this process and of the children that have ended."""
    return sum(os.times()[:4])


def memory() -> int:
    """Bytes that this process and its children hold, a page that they share counted once."""
    process = psutil.Process()
    return sum(map(_anonymous, [process.pid, *(child.pid for child in process.children(recursive=True))]))


def _anonymous(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))
    except (OSError, StopIteration):  # not Linux, or an old one, or the process has ended
        return int(psutil.Process(pid).memory_info().rss) if psutil.pid_exists(pid) else 0
