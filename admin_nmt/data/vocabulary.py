"""The vocabularies of a training text: tokenizers that exist, a byte-level BPE, or subword-nmt's pieces.

What is made of a text is kept in the cache under a key of its inputs.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import datasets
import pyarrow as pa
from datasets import Dataset, Features, Value
from datasets.fingerprint import Hasher
from filelock import FileLock
from transformers import PreTrainedTokenizerBase

from ..system.files import new_folder
from .arrow_cache import BATCH, map_shards
from .checksums import discard, folder_is_whole, write_checksums
from .corpora import Corpus
from .tokenization.bpe_codes import BpeCodes
from .tokenization.byte_bpe import train_tokenizer, with_pad_at, with_tags
from .tokenization.fairseq_tokenizer import FairseqTokenizer
from .tokenization.subword_training import count_pieces, dictionary, filled, learn_codes, write_dictionary
from .tokenization.tokenizer_folder import load_tokenizers, save_tokenizers

COUNTED = Features({"word": Value("string"), "count": Value("int64")})
Pair = tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]


class Vocabulary:
    """Tokenizers of source and target for a training text, and what its cleaning needs of them.

    Attributes:
        moses: settings by which the text becomes Moses' tokens before it is cleaned; None where it stays text.
    """

    moses: Mapping[str, bool] | None = None

    def tokenizers(self, training: Sequence[Corpus]) -> Pair:
        """Tokenizers of raw text, by the cleaned training corpora; both the same where the vocabulary is joint."""
        raise NotImplementedError

    def of_cleaned(self, source: Any, target: Any) -> Pair:
        """Tokenizers of the text that cleaning leaves, with the ids of those of raw text."""
        return source, target

    def learn(self, training: Sequence[Corpus]) -> list[BpeCodes]:
        """The codes of source and target by which a cleaning counts subwords."""
        raise NotImplementedError


@dataclass
class ExistingVocabulary(Vocabulary):
    """Tokenizers that exist.

    Args:
        extensible: tags of the corpora may join them; a model to start from has no embeddings for those.
    """

    source: PreTrainedTokenizerBase
    target: PreTrainedTokenizerBase
    extensible: bool = True

    def tokenizers(self, training: Sequence[Corpus]) -> Pair:
        if not self.extensible:
            return self.source, self.target
        tagged = with_tags(self.source, tags := _tags(training))
        return tagged, tagged if self.target is self.source else with_tags(self.target, tags)


@dataclass
class ByteVocabulary(Vocabulary):
    """Byte-level BPE of the cleaned text.

    Args:
        vocab_size: tokens of the joint vocabulary, or of the source's.
        target_vocab_size: tokens of the target's; None for as many.
        joint: whether one serves both languages.
        cache_dir: where the tokenizers are kept.
    """

    vocab_size: int
    target_vocab_size: int | None
    joint: bool
    cache_dir: Path

    def tokenizers(self, training: Sequence[Corpus]) -> Pair:
        tags, sizes = _tags(training), [self.vocab_size, self.target_vocab_size or self.vocab_size]
        inputs = [_fingerprints(training), self.vocab_size, self.joint, tags]
        inputs += [size for size in (self.target_vocab_size,) if size is not None]
        with _made_once(self.cache_dir, "tokenizer", inputs) as (folder, whole):
            if not whole:
                made = [
                    train_tokenizer(_texts(training, sides), size, tags=tags)
                    for sides, size in zip(_sides(self.joint), sizes, strict=False)
                ]
                # A model has one <pad> for both of its vocabularies: the last id of the smaller one.
                pad = min(map(len, made)) - 1
                with new_folder(folder) as temporary:
                    save_tokenizers(temporary, *(with_pad_at(tokenizer, pad) for tokenizer in made))
                    write_checksums(temporary)
            return load_tokenizers(folder)  # before anyone else may replace it


@dataclass
class SubwordVocabulary(Vocabulary):
    """Moses' tokens of all text, subword-nmt's codes and fairseq's dictionary of the pieces, as in the papers' scripts.

    The codes are learnt of the training text before the cleaning if that counts subwords, else after it, as in their
    scripts; the dictionary is that of the cleaned text.

    Args:
        merges: number of codes.
        most: symbols of the dictionary, at most; None for no limit.
        threshold: how often a piece stands in the text, at least, to be in the dictionary.
        joint: whether one vocabulary serves both languages.
        moses: settings of [`Moses`].
        languages: two-letter codes of source and target.
        cache_dir: where codes, counts and tokenizers are kept.
        num_proc: worker processes; None for one a core.
    """

    merges: int
    most: int | None
    threshold: int | None
    joint: bool
    moses: Mapping[str, bool] = field()  # without the default of the base class
    languages: Sequence[str]
    cache_dir: Path
    num_proc: int | None = None
    codes: list[bytes] = field(default_factory=list, init=False)  # of each vocabulary, once they are learnt

    def of_cleaned(self, source: Any, target: Any) -> Pair:
        return source.of_words(), target.of_words()

    def learn(self, training: Sequence[Corpus]) -> list[BpeCodes]:
        sides = _sides(self.joint)
        with _made_once(self.cache_dir, "codes", [_fingerprints(training), self.merges, self.joint]) as (folder, whole):
            paths = [folder / f"{number}.txt" for number in range(len(sides))]
            if not whole:
                with new_folder(folder) as temporary:
                    for path, side in zip(paths, sides, strict=True):
                        learn_codes(self._words(training, side), self.merges, temporary / path.name)
                    write_checksums(temporary)
            self.codes = [path.read_bytes() for path in paths]
            codes = [BpeCodes(path) for path in paths]
        return [codes[0], codes[-1]]

    def _words(self, training: Sequence[Corpus], sides: Sequence[str]) -> Counter[str]:
        """Count of each token in these sides of all corpora."""
        words: Counter[str] = Counter()
        for corpus in training:
            words.update(count_words(corpus.pairs, sides, cache_dir=self.cache_dir, num_proc=self.num_proc))
        return words

    def tokenizers(self, training: Sequence[Corpus]) -> Pair:
        if not self.codes:
            self.learn(training)
        made_of = [_fingerprints(training), [sha256(code).hexdigest() for code in self.codes]]
        settings = [self.most, self.threshold, tags := _tags(training), self.moses, self.languages]
        with _made_once(self.cache_dir, "tokenizer", [*made_of, *settings]) as (folder, whole):
            if not whole:
                with new_folder(folder) as temporary, TemporaryDirectory() as parts:
                    save_tokenizers(temporary, *self._make(training, tags, Path(parts)))
                    write_checksums(temporary)
            return load_tokenizers(folder)

    def _make(self, training: Sequence[Corpus], tags: list[str], folder: Path) -> list[FairseqTokenizer]:
        """The tokenizers, of files in a folder."""
        pieces, symbols, paths = [], [], [folder / f"{number}.txt" for number in range(len(self.codes))]
        for path, codes, sides in zip(paths, self.codes, _sides(self.joint), strict=True):
            path.write_bytes(codes)
            pieces.append(count_pieces(self._words(training, sides), BpeCodes(path)))
            symbols.append(dictionary(pieces[-1], self.most, self.threshold))
        # As many ids as fairseq has: a made-up word has the place of <s>, and fills up the smaller of two vocabularies.
        number = max(map(len, symbols)) + 1
        tokenizers = []
        for side, (path, counts, known) in enumerate(zip(paths, pieces, symbols, strict=True)):
            write_dictionary(entries := path.with_suffix(".dict"), [*filled(known, number), *tags], counts)
            moses = {**self.moses, "source": self.languages[side], "target": self.languages[1]}
            tokenizers.append(
                FairseqTokenizer(str(entries), str(path), moses=moses, marian_ids=True, extra_special_tokens=list(tags))
            )
        return tokenizers


def _tags(training: Sequence[Corpus]) -> list[str]:
    """The tags of all corpora, in order."""
    return sorted({corpus.treatment.tag for corpus in training if corpus.treatment.tag is not None})


def _fingerprints(training: Sequence[Corpus]) -> list[str]:
    return [corpus.pairs._fingerprint for corpus in training]


def _sides(joint: bool) -> list[list[str]]:
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


def count_words(
    dataset: Dataset, sides: Sequence[str], *, cache_dir: str | Path | None = None, num_proc: int | None = None
) -> Counter[str]:
    """Count each word in columns of a dataset; words are what stands between spaces.

    Counted a shard at a time and cached; only the counts are held in memory.
    """
    key = Hasher.hash(["words", dataset._fingerprint, list(sides)])
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / f"counted-{key}"
    function = partial(count_in, sides=tuple(sides))
    step: dict[str, Any] = {"fingerprint": key, "num_proc": num_proc, "desc": "counting words"}
    counted = map_shards(dataset, function, COUNTED, folder, **step)
    total: Counter[str] = Counter()
    for batch in counted.data.to_batches():
        for word, times in zip(*(batch.column(column).to_pylist() for column in COUNTED), strict=True):
            total[word] += times
    return total


def count_in(batch: pa.RecordBatch, sides: Sequence[str]) -> dict[str, list[Any]]:
    """Count each word in these columns of a batch: columns of `COUNTED`."""
    lines = (line for side in sides for line in batch.column(side).to_pylist())
    counts = Counter(word for line in lines for word in line.strip("\r\n ").split(" ") if word)
    return {"word": list(counts), "count": list(counts.values())}
