"""From the `data` section of a recipe to tokenised columns in a memory-mapped Arrow cache.

`load_corpora` reads the corpora and cleans the training pairs; `tokenize` makes what the batch sampler and the trainer
use. No step holds a corpus in memory, and each is cached under a key of its inputs.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, DatasetDict, Features, List, Value, concatenate_datasets
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .cleaning import CleaningOptions, clean, format_counts
from .fairseq_tokenizer import FairseqTokenizer
from .parallel_text import PAIR, load_parallel

TOKENIZED = Features(
    {
        "input_ids": List(Value("int32")),
        "labels": List(Value("int32")),
        "source_length": Value("int32"),
        "target_length": Value("int32"),
        **PAIR,
    }
)
SPLITS = ("train", "valid", "test")
CORPUS_FIELDS = ("source", "target", "columns", "name", "split")


def load_corpora(
    spec: Mapping[str, Any], *, cache_dir: str | Path | None = None, num_proc: int | None = None
) -> tuple[DatasetDict, dict[str, int]]:
    """Load the corpora of a recipe and clean the training pairs.

    Args:
        spec: any of `train`, `valid` and `test`, each the arguments of `load_parallel` as a mapping, and `cleaning`,
            the fields of `CleaningOptions`. Training pairs that overlap with `valid` or `test` are dropped.
        cache_dir: where the Arrow files go; None for the cache of `datasets`.
        num_proc: worker processes for the cleaning.

    Returns:
        The raw pairs of each split, and the counts of the cleaning (see `format_counts`; empty without `train`).
        With several processes, let the main one come first: the others then find the cache.
    """
    _check_fields("data", spec, (*SPLITS, "cleaning"))
    corpora = DatasetDict()
    for split in [split for split in SPLITS if split in spec]:
        _check_fields(f"data.{split}", spec[split], CORPUS_FIELDS)
        if "source" not in spec[split]:
            raise ValueError(f"data.{split} has no source; give a file or the name of a dataset")
        corpora[split] = load_parallel(**spec[split], cache_dir=cache_dir)
    if "train" not in corpora:
        return corpora, {}
    cleaning = spec.get("cleaning") or {}
    _check_fields("data.cleaning", cleaning, [field.name for field in fields(CleaningOptions)])
    evaluation = [corpora[split] for split in SPLITS[1:] if split in corpora]
    held_out = concatenate_datasets(evaluation) if evaluation else None
    corpora["train"], counts = clean(corpora["train"], CleaningOptions(**cleaning), held_out, num_proc=num_proc)
    if not counts["kept"]:
        raise ValueError(f"cleaning dropped every pair of data.train: relax data.cleaning\n{format_counts(counts)}")
    return corpora, counts


def tokenize(
    dataset: Dataset,
    source_tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int | None = None,
    cache_dir: str | Path | None = None,
    num_proc: int | None = None,
) -> Dataset:
    """Tokenise sentence pairs once; a second call with the same pairs, tokenizers and `max_length` reads the cache.

    The cache file is written under another name and renamed when complete, so an interrupted call leaves none.

    Args:
        dataset: columns `source` and `target`, text.
        source_tokenizer: ends every sentence with `</s>`.
        target_tokenizer: likewise; the same object for a joint vocabulary.
        max_length: drop pairs with a side of more tokens than this, `</s>` included (training); the lengths of the two
            datasets tell how many. None keeps every pair (evaluation). Nothing is ever truncated.
        cache_dir: where the Arrow file goes; None for the cache of `datasets`.
        num_proc: worker processes; one already uses all threads of `tokenizers`.

    Returns:
        The columns of `TOKENIZED`: token ids, their lengths with `</s>`, and the text.
    """
    tokenizers = (source_tokenizer, target_tokenizer)
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        if tokenizer("")["input_ids"] != [tokenizer.eos_token_id]:
            raise ValueError(f"the {side} tokenizer does not end a sentence with its eos_token; set its post-processor")
    key = Hasher.hash([dataset._fingerprint, max_length, *map(_tokenizer_state, tokenizers)])
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE)
    folder.mkdir(parents=True, exist_ok=True)
    tokenized = dataset.map(
        _encode,
        batched=True,
        fn_kwargs={"tokenizers": tokenizers, "max_length": max_length},
        features=TOKENIZED,
        cache_file_name=str(folder / f"tokenized-{key}.arrow"),
        new_fingerprint=key,
        num_proc=num_proc,
        desc="tokenising",
    )
    if not len(tokenized):
        raise ValueError(f"none of {len(dataset)} pairs has at most {max_length} tokens a side: raise max_length")
    return tokenized


def _encode(
    batch: Mapping[str, list[str]],
    tokenizers: tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast],
    max_length: int | None,
) -> dict[str, list[Any]]:
    plain = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
    sources = tokenizers[0](batch["source"], **plain)["input_ids"]
    targets = tokenizers[1](text_target=batch["target"], **plain)["input_ids"]
    columns = {
        "input_ids": sources,
        "labels": targets,
        "source_length": [len(ids) for ids in sources],
        "target_length": [len(ids) for ids in targets],
        "source": batch["source"],
        "target": batch["target"],
    }
    lengths = map(max, columns["source_length"], columns["target_length"])
    kept = [row for row, length in enumerate(lengths) if max_length is None or length <= max_length]
    return {name: [values[row] for row in kept] for name, values in columns.items()}


def _tokenizer_state(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
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
