"""From the `data` section of a recipe to tokenised columns in a memory-mapped Arrow cache.

`read_corpora` reads the corpora, `clean_corpora` filters the training pairs, and `tokenize` makes what the batch
sampler and the trainer use. No step holds a corpus in memory, and each is cached under a key of its inputs.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, DatasetDict, Features, List, Value, concatenate_datasets
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..tokenization.fairseq_tokenizer import FairseqTokenizer
from .arrow_steps import map_shards
from .cleaning import CleaningOptions, clean, format_counts
from .mixing import Corpus, Share
from .parallel_text import PAIR, load_parallel
from .rewriting import looks_segmented, rewrite

IDS = Features(
    {
        "input_ids": List(Value("int32")),
        "labels": List(Value("int32")),
        "source_length": Value("int32"),
        "target_length": Value("int32"),
    }
)
TOKENIZED = Features({**IDS, **PAIR})
SPLITS = ("train", "valid", "test")
CORPUS_FIELDS = ("source", "target", "columns", "name", "split")
SHARE_FIELDS = ("upsample", "tag", "detokenize")


def read_corpora(
    spec: Mapping[str, Any], *, cache_dir: str | Path | None = None, num_proc: int | None = None
) -> tuple[list[Corpus], DatasetDict]:
    """Load the corpora of a recipe.

    Args:
        spec: any of `train`, `valid` and `test`, each the arguments of `load_parallel` as a mapping, or a list of such
            mappings. Those of `train` may also have the fields of `Corpus`. Besides, what `clean_corpora` reads.
        cache_dir: where the Arrow files go; None for the cache of `datasets`.
        num_proc: worker processes; None for one a core.

    Returns:
        The training corpora, and the raw pairs of `valid` and `test` where they are given.
    """
    _check_fields("data", spec, (*SPLITS, "cleaning"))
    CleaningOptions(**_cleaning(spec))
    options: dict[str, Any] = {"cache_dir": cache_dir, "num_proc": num_proc}
    # A faulty field is refused before hours of reading.
    fields_of = {split: _corpora(spec, split) for split in SPLITS}
    shares = [Share(where, **_part(corpus, SHARE_FIELDS)) for where, corpus in fields_of["train"]]
    files = {split: [_part(corpus, CORPUS_FIELDS) for _, corpus in corpora] for split, corpora in fields_of.items()}
    pairs = {split: [load_parallel(**corpus, **options) for corpus in corpora] for split, corpora in files.items()}
    evaluation = {split: concatenate_datasets(pairs[split]) for split in SPLITS[1:] if pairs[split]}
    training = [Corpus(share, corpus) for share, corpus in zip(shares, pairs["train"], strict=True)]
    return training, DatasetDict(evaluation)


def _part(corpus: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: corpus[name] for name in names if name in corpus}


def _corpora(spec: Mapping[str, Any], split: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The corpora of a split, each with the name of its field."""
    if split not in spec:
        return []
    given = spec[split]
    named = [(f"data.{split}", given)]
    if isinstance(given, list) and split != "test":  # scores and cards name one test set
        named = [(f"data.{split}[{number}]", corpus) for number, corpus in enumerate(given)]
    known = (*CORPUS_FIELDS, *SHARE_FIELDS) if split == "train" else CORPUS_FIELDS
    for where, corpus in named:
        _check_fields(where, corpus, known)
        if not corpus.get("source"):
            raise ValueError(f"{where} has no source; give a file or the name of a dataset")
        if split == "test" and isinstance(corpus["source"], list):
            raise ValueError(f"{where}.source is a list; give one file, as scores and model cards name one test set")
    return named


def _cleaning(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    cleaning = spec.get("cleaning") or {}
    _check_fields("data.cleaning", cleaning, [field.name for field in fields(CleaningOptions)])
    return cleaning


def clean_corpora(
    training: Sequence[Corpus],
    evaluation: DatasetDict,
    spec: Mapping[str, Any],
    languages: Sequence[str],
    *,
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
) -> tuple[list[Corpus], dict[str, int]]:
    """Rewrite and clean the training pairs of a recipe, each corpus by itself.

    Args:
        training: what `read_corpora` gave, and so `evaluation`, whose pairs are dropped from it.
        spec: of which `cleaning` has the fields of `CleaningOptions`.
        languages: two-letter codes of source and target, for Moses.
        cache_dir: where the Arrow files go; None for the cache of `datasets`.
        num_proc: worker processes; None for one a core.

    Returns:
        The corpora, and the counts of the cleaning over all of them (see `format_counts`).
    """
    cleaning = CleaningOptions(**_cleaning(spec))
    options: dict[str, Any] = {"cache_dir": cache_dir, "num_proc": num_proc}
    held_out = concatenate_datasets(list(evaluation.values())) if evaluation else None
    if held_out is not None and cleaning.normalize:  # to find its sentences in text that was rewritten, and as they are
        held_out = concatenate_datasets([held_out, rewrite(held_out, ["normalize"], languages, **options)])
    cleaned, total = [], dict[str, int]()
    for corpus in training:
        if looks_segmented(corpus.pairs) and not corpus.share.detokenize:
            raise ValueError(
                f"{corpus.share.where}: its text went through BPE ('@@ '); give raw text, or set detokenize: true"
            )
        rules = ["detokenize"] * corpus.share.detokenize + ["normalize"] * cleaning.normalize
        pairs, counts = clean(rewrite(corpus.pairs, rules, languages, **options), cleaning, held_out, **options)
        if not counts["kept"]:
            raise ValueError(
                f"cleaning dropped every pair of {corpus.share.where}: relax data.cleaning\n{format_counts(counts)}"
            )
        cleaned.append(replace(corpus, pairs=pairs))
        total = {name: total.get(name, 0) + count for name, count in counts.items()}
    return cleaned, total


def tokenize(
    dataset: Dataset,
    source_tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int | None = None,
    tag: str | None = None,
    keep_text: bool = True,
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
) -> Dataset:
    """Tokenise sentence pairs once; a second call with the same pairs, tokenizers and settings reads the cache.

    The cache is made a shard at a time (see `map_shards`): an interrupted call goes on where it was.

    Args:
        dataset: columns `source` and `target`, text.
        source_tokenizer: ends every sentence with `</s>`.
        target_tokenizer: likewise; the same object for a joint vocabulary.
        max_length: drop pairs with a side of more tokens than this, `</s>` included (training); the lengths of the two
            datasets tell how many. None keeps every pair (evaluation). Nothing is ever truncated.
        tag: a token that goes in front of every source.
        keep_text: keep the text beside the ids; evaluation needs it, training does not.
        cache_dir: where the Arrow files go; None for the cache of `datasets`.
        num_proc: worker processes; None for one a core.

    Returns:
        The columns of `TOKENIZED`: token ids, their lengths with `</s>`, and the text; without text those of `IDS`.

    Raises:
        ValueError: a tokenizer does not end its sentences, the tag is no token of its vocabulary, or no pair is left.
    """
    tokenizers = (source_tokenizer, target_tokenizer)
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        if tokenizer("")["input_ids"] != [tokenizer.eos_token_id]:
            raise ValueError(f"the {side} tokenizer does not end a sentence with its eos_token; set its post-processor")
    prefix = [] if tag is None else [_tag_id(tag, source_tokenizer)]
    states = [tokenizer_state(tokenizer) for tokenizer in tokenizers]
    key = Hasher.hash([dataset._fingerprint, max_length, prefix, keep_text, *states])
    encode = partial(_encode, tokenizers=tokenizers, max_length=max_length, prefix=prefix, keep_text=keep_text)
    tokenized = map_shards(
        dataset,
        encode,
        TOKENIZED if keep_text else IDS,
        Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / f"tokenized-{key}",
        fingerprint=key,
        num_proc=num_proc,
        desc="tokenising",
    )
    if not len(tokenized):
        raise ValueError(f"none of {len(dataset)} pairs has at most {max_length} tokens a side: raise max_length")
    return tokenized


def _tag_id(tag: str, tokenizer: PreTrainedTokenizerBase) -> int:
    vocabulary = tokenizer.get_vocab()
    if tag not in vocabulary:
        raise ValueError(f"the tag {tag} is no token of the source vocabulary; train a new tokenizer on these corpora")
    return int(vocabulary[tag])


def _encode(
    batch: Mapping[str, list[str]],
    tokenizers: tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast],
    max_length: int | None,
    prefix: list[int],
    keep_text: bool,
) -> dict[str, list[Any]]:
    plain = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    sources = tokenizers[0](batch["source"], **plain)["input_ids"]
    targets = tokenizers[1](text_target=batch["target"], **plain)["input_ids"]
    if prefix:
        sources = [prefix + ids for ids in sources]
    columns = {
        "input_ids": sources,
        "labels": targets,
        "source_length": [len(ids) for ids in sources],
        "target_length": [len(ids) for ids in targets],
    }
    if keep_text:
        columns |= {"source": batch["source"], "target": batch["target"]}
    lengths = map(max, columns["source_length"], columns["target_length"])
    kept = [row for row, length in enumerate(lengths) if max_length is None or length <= max_length]
    return {name: [values[row] for row in kept] for name, values in columns.items()}


def tokenizer_state(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The content of tokenizer.json less padding and truncation, which earlier calls of the tokenizer leave behind."""
    if isinstance(tokenizer, FairseqTokenizer):
        return tokenizer.state()
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    return {name: value for name, value in state.items() if name not in ("padding", "truncation")}


def _check_fields(section: str, given: Any, known: Collection[str]) -> None:
    if not isinstance(given, Mapping):
        raise ValueError(f"{section} is {given!r}; give a mapping with fields of {', '.join(known)}")
    for field in given:
        if field not in known:
            raise ValueError(f"{section} has an unknown field {field!r}; known are {', '.join(known)}")
