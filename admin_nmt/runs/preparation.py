"""From a recipe to tokenised data: reading, cleaning, vocabulary, tokenising, each step cached."""

import glob
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accelerate import PartialState
from datasets import Dataset, DatasetDict
from transformers import PreTrainedTokenizerBase

from ..data.cleaning import CleaningOptions, dropped
from ..data.corpora import SPLITS, clean_corpora, mix, read_corpora
from ..data.parallel_text import TEST_SET, read_more_references
from ..data.phrasebook import BUILTIN_CORPORA
from ..data.tokenization.subword_training import NEEDS_SUBWORD_NMT
from ..data.tokenization.tokenizer_folder import load_tokenizers
from ..data.tokenizing import share_of, tokenize
from ..data.vocabulary import ByteVocabulary, ExistingVocabulary, SubwordVocabulary, Vocabulary
from ..hub.model_folder import local_folder, model_of_run, read_config
from ..model.configuration_admin import AdminConfig
from ..system.processes import print_once
from .recipe import MOSES, Recipe

Watch = Callable[[str], AbstractContextManager["Step"]]


@dataclass
class Prepared:
    """Tokenised data, tokenizers, the counts of the cleaning, and the lines of each further reference of the test."""

    data: DatasetDict
    source_tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase
    counts: dict[str, int]
    more_references: list[list[str]] = field(default_factory=list)


@dataclass
class Step:
    """A step of the preparation, for whoever watches it."""

    name: str
    pairs: int = 0


@contextmanager
def unwatched(name: str) -> Iterator[Step]:
    """Nobody watches."""
    yield Step(name)


@contextmanager
def timed(name: str) -> Iterator[Step]:
    """Print what a step took."""
    step, start = Step(name), time.perf_counter()
    yield step
    seconds = time.perf_counter() - start
    print_once(f"{name}: {step.pairs:,} pairs in {seconds:.1f} s, {step.pairs / seconds:,.0f} a second")


# What one may change of a model to start from: nothing that its weights depend on.
FREE = ("dropout", "attention_dropout", "activation_dropout", "label_smoothing", "use_cache", "dtype")


def check_start(recipe: Recipe) -> None:
    """Check that the recipe and the model to start from, if there is one, agree on what that model is.

    Raises:
        ValueError: naming the field.
    """
    start = recipe.model.from_pretrained
    if start is None:
        return
    config = read_config(model_folder(start, "model.from_pretrained"))
    if not isinstance(config, AdminConfig):
        raise ValueError(
            f"model.from_pretrained: {start} holds a {config.model_type} model; start from an unfolded one (final/)"
        )
    for name, value in recipe.model.configuration().items():
        if name not in FREE and getattr(config, name) != value:
            raise ValueError(f"model.{name} is {value!r}, but {start} has {getattr(config, name)!r}; leave it out")
    for name, own in (("vocab_size", config.vocab_size), ("target_vocab_size", config.decoder_vocab_size or 0)):
        size = recipe.tokenizer.given().get(name) or own
        if recipe.tokenizer.path is None and size < own:
            raise ValueError(f"tokenizer.{name} is {size}, but {start} has {own}; leave it out")


def model_folder(name: str, field: str) -> Path:
    """The folder of the model that a field of a recipe names.

    Raises:
        ValueError: naming the field, where there is none.
    """
    try:
        if (model := model_of_run(Path(name), trained=True)) is not None:
            raise ValueError(f"{name} is the folder of a run; name the model in it, {model}")
        return local_folder(name)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error


def vocabulary_of(recipe: Recipe, cache: Path, num_proc: int | None = None) -> Vocabulary:
    """The vocabulary that a recipe asks for.

    Raises:
        ValueError: naming the field of tokenizers that are not there or damaged.
        ImportError: subword-nmt is needed and not installed.
    """
    section, start = recipe.tokenizer, recipe.model.from_pretrained
    if section.kind == "subword_nmt":
        if find_spec("subword_nmt") is None:  # not after hours of reading
            raise ImportError(NEEDS_SUBWORD_NMT)
        assert section.merges is not None  # the recipe was checked
        moses = {name: getattr(section, name) for name in MOSES}
        sizes = section.merges, section.most, section.threshold, section.joint
        return SubwordVocabulary(*sizes, moses, recipe.languages, cache, num_proc)
    existing = section.path or start
    if existing is None:
        return ByteVocabulary(section.vocab_size, section.target_vocab_size, section.joint, cache)
    field = "tokenizer.path" if section.path else "model.from_pretrained"
    folder = model_folder(existing, field)
    try:
        return ExistingVocabulary(*load_tokenizers(folder), extensible=start is None)
    except Exception as error:  # transformers and tokenizers raise whatever their parsers do
        raise ValueError(f"{field}: {folder} has no tokenizer, or a damaged one ({error}); copy it again") from error


def prepare(recipe: Recipe, num_proc: int | None = None, watch: Watch = unwatched) -> Prepared:
    """Load, clean and tokenise the corpora; every step is cached, and one process of a machine does it first.

    Args:
        num_proc: worker processes; None for one a core.
        watch: a context around each step; the step tells it the number of its pairs.
    """
    check_start(recipe)
    cache, root = Path(recipe.data.cache_dir), recipe.data.root
    vocabulary = vocabulary_of(recipe, cache, num_proc)
    spec = {name: value for name, value in recipe.data.given().items() if name in SPLITS and value is not None}
    cleaning = CleaningOptions(**recipe.data.cleaning.given() if recipe.data.cleaning is not None else {})
    with PartialState().local_main_process_first():
        if root is not None:
            spec |= {split: _below(root, spec[split]) for split in SPLITS if split in spec}
        if recipe.data.builtin is not None:
            spec |= _write_builtin(recipe.data.builtin, cache)
        with watch("reading") as step:
            training, evaluation = read_corpora(
                spec,
                valid_every=recipe.data.valid_every,
                languages=recipe.languages,
                cache_dir=cache,
                num_proc=num_proc,
            )
            step.pairs = sum(len(corpus.pairs) for corpus in training)
            more_references = _more_references(spec, evaluation)
        with watch("cleaning") as step:
            moses = vocabulary.moses
            if moses is not None and cleaning.normalize:
                moses = {**moses, "normalize_punctuation": True}
            training, counts = clean_corpora(
                training,
                _with_more_references(evaluation, more_references),
                cleaning,
                recipe.languages,
                moses=moses,
                learn=vocabulary.learn if cleaning.count == "subwords" else None,
                cache_dir=cache,
                num_proc=num_proc,
            )
            step.pairs = counts["total"]
        print_once(_cleaned(counts))
        with watch("vocabulary") as step:
            source, target = vocabulary.tokenizers(training)
            step.pairs = counts["kept"]
        with watch("tokenising") as step:
            sides, longest = vocabulary.of_cleaned(source, target), recipe.data.max_length
            train = [
                tokenize(
                    corpus.pairs,
                    *sides,
                    tag=corpus.treatment.tag,
                    max_length=longest,
                    keep_text=False,
                    cache_dir=cache,
                    num_proc=num_proc,
                )
                for corpus in training
            ]
            data = {"train": mix(train, [corpus.treatment.upsample for corpus in training])}
            for split, pairs in evaluation.items():
                data[split] = tokenize(pairs, source, target, cache_dir=cache, num_proc=num_proc)
            step.pairs = counts["kept"]
    counts = counts | {"too many tokens": counts["kept"] - sum(map(len, train))}
    if counts["too many tokens"]:
        print_once(f"      {counts['too many tokens']:,} pairs left out: over {longest} tokens (data.max_length)")
    print_once(f"      vocabulary {_sizes(recipe, source, target)}")
    print_once("      " + ", ".join(f"{split} {len(part):,} pairs" for split, part in data.items()))
    if unknown := _unknown({split: data[split] for split in evaluation}, source, target):
        print_once(f"      {unknown}")
    return Prepared(DatasetDict(data), source, target, counts, more_references)


def _more_references(spec: dict[str, Any], evaluation: DatasetDict) -> list[list[str]]:
    files = spec.get("test", {}).get("more_references") or []
    try:
        return read_more_references(files, len(evaluation["test"])) if files else []
    except ValueError as error:
        raise ValueError(f"data.test.more_references: {error}") from error


def _with_more_references(evaluation: DatasetDict, more_references: list[list[str]]) -> DatasetDict:
    """Pairs that training must not see: also each source of the test set with its further references."""
    pairs = {
        f"test {number}": Dataset.from_dict({"source": evaluation["test"]["source"][:], "target": lines})
        for number, lines in enumerate(more_references, 1)
    }
    return DatasetDict(evaluation | pairs)


def _cleaned(counts: Mapping[str, int]) -> str:
    """Pairs that the cleaning kept, and those that it took away, if anything."""
    kept = f"      cleaning kept {counts['kept']:,} of {counts['total']:,} pairs"
    return f"{kept}\n      removed: {removed}" if (removed := dropped(counts)) else kept


def _sizes(recipe: Recipe, source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> str:
    """The size of the vocabulary, or of both, and that more was wanted of a new one."""
    sizes = [len(source)] if source is target else [len(source), len(target)]
    if recipe.tokenizer.path or recipe.model.from_pretrained:
        return " and ".join(map(str, sizes))
    return " and ".join(
        f"{size}" if size >= wanted else f"{size}, all that the text yields of tokenizer.{name} {wanted}"
        for size, (name, wanted) in zip(sizes, recipe.tokenizer.sizes(), strict=True)
    )


def _unknown(data: Mapping[str, Dataset], source: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> str:
    """Share of tokens of each side that the vocabulary lacks; nothing where it lacks none, as a byte-level BPE does."""
    shares = []
    for split, pairs in data.items():
        for side, column, tokenizer in (("source", "input_ids", source), ("target", "labels", target)):
            share = share_of(pairs, column, tokenizer.unk_token_id)
            if share:
                shares.append(f"{share:.2%} of {split}'s {side}")
    return f"unknown tokens ({target.unk_token}): {', '.join(shares)}" if shares else ""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _below(root: str, corpora: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any] | list[dict[str, Any]]:
    """The corpora with their files below `root`."""

    def below(files: Any) -> Any:
        if isinstance(files, list):
            return [below(file) for file in files]
        if files is None or files.startswith(TEST_SET):
            return files
        plain = Path(root) / files
        return str(Path(glob.escape(root)) / files if glob.has_magic(files) and not plain.exists() else plain)

    sides = ("source", "target", "more_references")
    found = [corpus | {side: below(corpus[side]) for side in sides if side in corpus} for corpus in _as_list(corpora)]
    return found if isinstance(corpora, list) else found[0]


def _write_builtin(name: str, cache: Path) -> dict[str, dict[str, str]]:
    folder = cache / name
    if PartialState().is_local_main_process:
        BUILTIN_CORPORA[name](folder)
    return {
        split: {"source": str(folder / f"{split}.en"), "target": str(folder / f"{split}.de")}
        for split in ("train", "valid", "test")
    }
