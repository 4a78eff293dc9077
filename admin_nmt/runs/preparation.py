"""From a recipe to tokenised data: reading, cleaning, vocabulary, tokenising, each step cached."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from accelerate import PartialState
from datasets import Dataset, DatasetDict
from filelock import FileLock
from transformers import PreTrainedTokenizerBase

from ..data.checksums import discard, folder_is_whole, write_checksums
from ..data.cleaning import CleaningOptions, format_counts
from ..data.corpora import SPLITS, clean_corpora, read_corpora
from ..data.mixing import Corpus, mix
from ..data.parallel_text import TEST_SET, read_more_references
from ..data.phrasebook import BUILTIN_CORPORA
from ..data.tokenizing import tokenize
from ..distributed import print_once
from ..files import new_folder
from ..folders.model_folder import local_folder, read_config
from ..model.configuration_admin import AdminConfig
from ..tokenization.byte_bpe import load_tokenizers, save_tokenizers, train_tokenizer, with_tags
from .recipe import Recipe

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


# What one may change of a model to start from: nothing that its weights depend on.
FREE = ("dropout", "attention_dropout", "activation_dropout", "label_smoothing", "use_cache", "dtype")


def check_start(recipe: Recipe) -> None:
    """Whether the recipe and the model to start from, if there is one, agree on what that model is.

    Raises:
        ValueError: naming the field.
    """
    start = recipe.model.from_pretrained
    if start is None:
        return
    config = read_config(_folder(start, "model.from_pretrained"))
    if not isinstance(config, AdminConfig):
        raise ValueError(
            f"model.from_pretrained: {start} holds a {config.model_type} model; start from an unfolded one (final/)"
        )
    for name, value in recipe.model.configuration().items():
        if name not in FREE and getattr(config, name) != value:
            raise ValueError(f"model.{name} is {value!r}, but {start} has {getattr(config, name)!r}; leave it out")
    size = recipe.tokenizer.given().get("vocab_size", config.vocab_size)
    if recipe.tokenizer.path is None and size < config.vocab_size:
        raise ValueError(f"tokenizer.vocab_size is {size}, but {start} has {config.vocab_size}; leave it out")


def _folder(given: str, field: str) -> Path:
    try:
        return local_folder(given)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error


def _load(given: str, field: str) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    folder = _folder(given, field)
    try:
        return load_tokenizers(folder)
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
    spec = {name: given for name, given in recipe.data.given().items() if name in SPLITS and given is not None}
    cleaning = CleaningOptions(**recipe.data.cleaning.given() if recipe.data.cleaning is not None else {})
    options: dict[str, Any] = {"cache_dir": cache, "num_proc": num_proc}
    with PartialState().local_main_process_first():
        if recipe.data.builtin is not None:
            spec |= _write_builtin(recipe.data.builtin, cache)
        if root is not None:
            spec |= {split: _below(root, spec[split]) for split in SPLITS if split in spec}
        with watch("reading") as step:
            training, evaluation = read_corpora(spec, valid_every=recipe.data.valid_every, **options)
            step.pairs = sum(len(corpus.pairs) for corpus in training)
            more_references = _more_references(spec, evaluation)
        with watch("cleaning") as step:
            held_out = _with_more_references(evaluation, more_references)
            training, counts = clean_corpora(training, held_out, cleaning, recipe.languages, **options)
            step.pairs = counts["total"]
        print_once(format_counts(counts))
        with watch("vocabulary") as step:
            source, target = _tokenizers(recipe, training, cache)
            step.pairs = counts["kept"]
        with watch("tokenising") as step:
            ids = options | {"max_length": recipe.data.max_length, "keep_text": False}
            train = [tokenize(c.pairs, source, target, tag=c.treatment.tag, **ids) for c in training]
            data = {"train": mix(train, [corpus.treatment.upsample for corpus in training])}
            data |= {split: tokenize(pairs, source, target, **options) for split, pairs in evaluation.items()}
            step.pairs = counts["kept"]
    counts = counts | {"too many tokens": counts["kept"] - sum(map(len, train))}
    print_once(f"too many tokens {counts['too many tokens']}; vocabulary {_size(recipe, len(source))}")
    print_once(", ".join(f"{split} {len(part)} pairs" for split, part in data.items()))
    return Prepared(DatasetDict(data), source, target, counts, more_references)


def _more_references(spec: dict[str, Any], evaluation: DatasetDict) -> list[list[str]]:
    files = spec.get("test", {}).get("more_references") or []
    try:
        return read_more_references(files, len(evaluation["test"])) if files else []
    except ValueError as error:
        raise ValueError(f"data.test.more_references: {error}") from error


def _with_more_references(evaluation: DatasetDict, more_references: list[list[str]]) -> DatasetDict:
    """What training must not see: also each source of the test set with its further references."""
    pairs = {
        f"test {number}": Dataset.from_dict({"source": evaluation["test"]["source"][:], "target": lines})
        for number, lines in enumerate(more_references, 1)
    }
    return DatasetDict(evaluation | pairs)


def _size(recipe: Recipe, size: int) -> str:
    """The size of the vocabulary, and that more was wanted of a new one."""
    wanted, existing = recipe.tokenizer.vocab_size, recipe.tokenizer.path or recipe.model.from_pretrained
    if existing or size >= wanted:
        return f"{size}"
    return f"{size}, all that the text yields of tokenizer.vocab_size {wanted}"


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _below(root: str, corpora: dict[str, Any] | list[dict[str, Any]]) -> dict[str, Any] | list[dict[str, Any]]:
    """The corpora with their files below `root`."""

    def below(files: Any) -> Any:
        if isinstance(files, list):
            return [below(file) for file in files]
        return files if files is None or files.startswith(TEST_SET) else str(Path(root) / files)

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


def _tokenizers(recipe: Recipe, training: list[Corpus], cache: Path) -> tuple[Any, Any]:
    """Those of `path` or of the model to start from, or new ones, which are kept by what they were trained on."""
    start = recipe.model.from_pretrained
    existing = recipe.tokenizer.path or start
    tags = sorted({corpus.treatment.tag for corpus in training if corpus.treatment.tag is not None})
    if existing is not None:
        source, target = _load(existing, "tokenizer.path" if recipe.tokenizer.path else "model.from_pretrained")
        if start is not None:  # whose embeddings have no room for tags
            return source, target
        tagged = with_tags(source, tags)
        return tagged, tagged if target is source else with_tags(target, tags)  # which both end with <pad>
    vocab_size, joint = recipe.tokenizer.vocab_size, recipe.tokenizer.joint
    inputs = [[corpus.pairs._fingerprint for corpus in training], vocab_size, joint, tags]
    folder = cache / f"tokenizer-{sha256(json.dumps(inputs).encode()).hexdigest()[:16]}"
    with FileLock(folder.with_suffix(".lock")):
        if not folder_is_whole(folder):
            discard(folder)
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
                write_checksums(temporary)
        return load_tokenizers(folder)  # before anyone else may replace it
