"""From a recipe to tokenised data: reading, cleaning, vocabulary, tokenising, each step cached."""

import glob
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from accelerate import PartialState
from datasets import Dataset, DatasetDict
from filelock import FileLock
from transformers import PreTrainedTokenizerBase

from ..data.arrow_cache import BATCH
from ..data.checksums import discard, folder_is_whole, write_checksums
from ..data.cleaning import CleaningOptions
from ..data.corpora import SPLITS, Corpus, clean_corpora, mix, read_corpora
from ..data.parallel_text import TEST_SET, read_more_references
from ..data.phrasebook import BUILTIN_CORPORA
from ..data.rewriting import count_words
from ..data.tokenization.bpe_codes import BpeCodes
from ..data.tokenization.byte_bpe import train_tokenizer, with_pad_at, with_tags
from ..data.tokenization.fairseq_tokenizer import FairseqTokenizer
from ..data.tokenization.subword_training import (
    NEEDS_SUBWORD_NMT,
    count_pieces,
    dictionary,
    filled,
    learn_codes,
    write_dictionary,
)
from ..data.tokenization.tokenizer_folder import load_tokenizers, save_tokenizers
from ..data.tokenizing import share_of, tokenize
from ..hub.model_folder import local_folder, model_of_run, read_config
from ..model.configuration_admin import AdminConfig
from ..system.files import new_folder
from ..system.processes import print_once
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


def _load(name: str, field: str) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    folder = model_folder(name, field)
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
    if recipe.tokenizer.kind == "subword_nmt" and find_spec("subword_nmt") is None:  # not after hours of reading
        raise ImportError(NEEDS_SUBWORD_NMT)
    cache, root = Path(recipe.data.cache_dir), recipe.data.root
    spec = {name: value for name, value in recipe.data.given().items() if name in SPLITS and value is not None}
    cleaning = CleaningOptions(**recipe.data.cleaning.given() if recipe.data.cleaning is not None else {})
    options: dict[str, Any] = {"cache_dir": cache, "num_proc": num_proc}
    with PartialState().local_main_process_first():
        if root is not None:
            spec |= {split: _below(root, spec[split]) for split in SPLITS if split in spec}
        if recipe.data.builtin is not None:
            spec |= _write_builtin(recipe.data.builtin, cache)
        with watch("reading") as step:
            training, evaluation = read_corpora(
                spec, valid_every=recipe.data.valid_every, languages=recipe.languages, **options
            )
            step.pairs = sum(len(corpus.pairs) for corpus in training)
            more_references = _more_references(spec, evaluation)
        vocabulary = (SubwordVocabulary if recipe.tokenizer.kind == "subword_nmt" else ByteVocabulary)(recipe, options)
        with watch("cleaning") as step:
            held_out = _with_more_references(evaluation, more_references)
            training, counts = clean_corpora(
                training, held_out, cleaning, recipe.languages, **options, **vocabulary.cleaning(cleaning)
            )
            step.pairs = counts["total"]
        print_once(_cleaned(counts))
        with watch("vocabulary") as step:
            source, target = vocabulary.tokenizers(training)
            step.pairs = counts["kept"]
        with watch("tokenising") as step:
            ids = options | {"max_length": recipe.data.max_length, "keep_text": False}
            sides = vocabulary.of_cleaned(source, target)
            train = [tokenize(c.pairs, *sides, tag=c.treatment.tag, **ids) for c in training]
            data = {"train": mix(train, [corpus.treatment.upsample for corpus in training])}
            data |= {split: tokenize(pairs, source, target, **options) for split, pairs in evaluation.items()}
            step.pairs = counts["kept"]
    counts = counts | {"too many tokens": counts["kept"] - sum(map(len, train))}
    if counts["too many tokens"]:
        longest = recipe.data.max_length
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
    removed = [f"{name} {count:,}" for name, count in counts.items() if count and name not in ("total", "kept")]
    kept = f"      cleaning kept {counts['kept']:,} of {counts['total']:,} pairs"
    return f"{kept}\n      removed: {', '.join(removed)}" if removed else kept


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


class ByteVocabulary:
    """Byte-level BPE of the cleaned text, or tokenizers that exist."""

    def __init__(self, recipe: Recipe, options: Mapping[str, Any]) -> None:
        self.recipe, self.options = recipe, dict(options)

    def cleaning(self, options: CleaningOptions) -> dict[str, Any]:
        """Facts that `clean_corpora` needs of the vocabulary."""
        return {}

    def of_cleaned(self, source: Any, target: Any) -> tuple[Any, Any]:
        """Tokenizers of the text that cleaning leaves, with the ids of those of raw text."""
        return source, target

    def tokenizers(self, training: list[Corpus]) -> tuple[Any, Any]:
        """Tokenizers of `path` or of the model to start from, or new ones, kept by what they were trained on."""
        section, start, tags = self.recipe.tokenizer, self.recipe.model.from_pretrained, _tags(training)
        existing = section.path or start
        if existing is not None:
            source, target = _load(existing, "tokenizer.path" if section.path else "model.from_pretrained")
            if start is not None:  # whose embeddings have no room for tags
                return source, target
            tagged = with_tags(source, tags)
            return tagged, tagged if target is source else with_tags(target, tags)  # in front of <pad>, in both
        inputs = [[corpus.pairs._fingerprint for corpus in training], section.vocab_size, section.joint, tags]
        inputs += [size for size in (section.target_vocab_size,) if size is not None]
        with _made_once(self.options["cache_dir"], "tokenizer", inputs) as (folder, whole):
            if not whole:
                tokenizers = []
                for sides, (_, size) in zip(_vocabularies(section.joint), section.sizes(), strict=True):
                    tokenizers.append(train_tokenizer(_texts(training, sides), size, tags=tags))
                # A model has one <pad> for both of its vocabularies: the last id of the smaller one.
                pad = min(map(len, tokenizers)) - 1
                tokenizers = [with_pad_at(tokenizer, pad) for tokenizer in tokenizers]
                with new_folder(folder) as temporary:
                    save_tokenizers(temporary, *tokenizers)
                    write_checksums(temporary)
            return load_tokenizers(folder)  # before anyone else may replace it


def _tags(training: Sequence[Corpus]) -> list[str]:
    """The tags of all corpora, in order."""
    return sorted({corpus.treatment.tag for corpus in training if corpus.treatment.tag is not None})


def _vocabularies(joint: bool) -> list[list[str]]:
    """The sides of each vocabulary."""
    return [["source", "target"]] if joint else [["source"], ["target"]]


def _texts(training: Sequence[Corpus], sides: Sequence[str]) -> Iterator[str]:
    """The text of these sides of all corpora."""
    for corpus in training:
        for batch in corpus.pairs.iter(BATCH):
            for side in sides:
                yield from batch[side]


@contextmanager
def _made_once(cache: Path, kind: str, inputs: Any) -> Iterator[tuple[Path, bool]]:
    """A folder of the cache named after what is made of these inputs, and whether it is whole; others wait for it."""
    folder = cache / f"{kind}-{sha256(json.dumps(inputs).encode()).hexdigest()[:16]}"
    with FileLock(folder.with_suffix(".lock")):
        whole = folder_is_whole(folder)
        if not whole:
            discard(folder)
        yield folder, whole


class SubwordVocabulary:
    """As the papers' scripts: Moses' tokens of all text, subword-nmt's codes, and fairseq's dictionary of the pieces.

    The codes are learnt of the training text before the cleaning if that counts subwords, else after it, as in their
    scripts; the dictionary is that of the cleaned text.
    """

    def __init__(self, recipe: Recipe, options: Mapping[str, Any]) -> None:
        section = recipe.tokenizer
        self.section, self.languages, self.options = section, recipe.languages, dict(options)
        self.cache: Path = options["cache_dir"]
        self.moses = {name: getattr(section, name) for name in ("normalize_punctuation", "aggressive_hyphens")}
        self.moses["split_final_dots"] = section.split_final_dots
        self.sides = _vocabularies(section.joint)
        self.codes: list[bytes] = []  # of each vocabulary, once they are learnt

    def cleaning(self, options: CleaningOptions) -> dict[str, Any]:
        training = self.moses | {"normalize_punctuation": options.normalize or self.section.normalize_punctuation}
        return {"moses": training, "learn": self.learn if options.count == "subwords" else None}

    def of_cleaned(self, source: Any, target: Any) -> tuple[Any, Any]:
        return source.of_words(), target.of_words()

    def learn(self, training: Sequence[Corpus]) -> list[BpeCodes]:
        """The codes of source and target, kept by what they were learnt of."""
        assert self.section.merges is not None  # the recipe was checked
        inputs = [[corpus.pairs._fingerprint for corpus in training], self.section.merges, self.section.joint]
        with _made_once(self.cache, "codes", inputs) as (folder, whole):
            if not whole:
                with new_folder(folder) as temporary:
                    for number, sides in enumerate(self.sides):
                        learn_codes(self._words(training, sides), self.section.merges, temporary / f"{number}.txt")
                    write_checksums(temporary)
            paths = [folder / f"{number}.txt" for number in range(len(self.sides))]
            self.codes = [path.read_bytes() for path in paths]
            codes = [BpeCodes(path) for path in paths]
        return [codes[0], codes[-1]]

    def _words(self, training: Sequence[Corpus], sides: Sequence[str]) -> Counter[str]:
        """Count of each token in these sides of all corpora."""
        words: Counter[str] = Counter()
        for corpus in training:
            words.update(count_words(corpus.pairs, sides, **self.options))
        return words

    def tokenizers(self, training: list[Corpus]) -> tuple[Any, Any]:
        """Tokenizers of raw text, kept by what they were made of; both the same where the vocabulary is joint."""
        if not self.codes:
            self.learn(training)
        tags = _tags(training)
        made_of = [
            [corpus.pairs._fingerprint for corpus in training],
            [sha256(code).hexdigest() for code in self.codes],
        ]
        settings = [self.section.most, self.section.threshold, tags, self.moses, self.languages]
        with _made_once(self.cache, "tokenizer", [*made_of, *settings]) as (folder, whole):
            if not whole:
                with new_folder(folder) as temporary, TemporaryDirectory() as parts:
                    save_tokenizers(temporary, *self._make(training, tags, Path(parts)))
                    write_checksums(temporary)
            return load_tokenizers(folder)

    def _make(self, training: Sequence[Corpus], tags: list[str], folder: Path) -> list[FairseqTokenizer]:
        """The tokenizers, of files in a folder."""
        pieces, symbols, paths = [], [], [folder / f"{number}.txt" for number in range(len(self.sides))]
        for path, codes, sides in zip(paths, self.codes, self.sides, strict=True):
            path.write_bytes(codes)
            pieces.append(count_pieces(self._words(training, sides), BpeCodes(path)))
            symbols.append(dictionary(pieces[-1], self.section.most, self.section.threshold))
        # As many ids as fairseq has: a made-up word has the place of <s>, and fills up the smaller of two vocabularies.
        number = max(map(len, symbols)) + 1
        tokenizers = []
        for side, (path, counts, known) in enumerate(zip(paths, pieces, symbols, strict=True)):
            write_dictionary(entries := path.with_suffix(".dict"), [*filled(known, number), *tags], counts)
            moses = self.moses | {"source": self.languages[side], "target": self.languages[1]}
            tokenizers.append(
                FairseqTokenizer(str(entries), str(path), moses=moses, marian_ids=True, extra_special_tokens=list(tags))
            )
        return tokenizers
