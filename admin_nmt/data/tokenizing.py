"""Tokenised pairs: ids and their lengths as columns of a memory-mapped Arrow cache, of which batches are made."""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, List, Value
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from .arrow_cache import BATCH, map_shards
from .parallel_text import PAIR
from .tokenization.tokenizer_folder import tokenizer_digest

DIGESTED = 1_000_000  # pairs, some hundred megabytes of ids

IDS = Features(
    {
        "input_ids": List(Value("int32")),
        "labels": List(Value("int32")),
        "source_length": Value("int32"),
        "target_length": Value("int32"),
    }
)
TOKENIZED = Features({**IDS, **PAIR})


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

    The cache is made a shard at a time (see `map_shards`): after an interruption the same call continues.

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
        ValueError: a column is missing, a tokenizer does not end its sentences, the tag is no token of its vocabulary,
            or no pair is left.
    """
    if missing := set(PAIR) - set(dataset.column_names):
        raise ValueError(
            f"the dataset has no column {' or '.join(sorted(missing))}, but {', '.join(dataset.column_names)}; rename "
            "them with rename_columns"
        )
    tokenizers = (source_tokenizer, target_tokenizer)
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        if tokenizer("")["input_ids"] != [tokenizer.eos_token_id]:
            raise ValueError(f"the {side} tokenizer does not end a sentence with its eos_token; set its post-processor")
    prefix = [] if tag is None else [_tag_id(tag, source_tokenizer)]
    key = Hasher.hash([dataset._fingerprint, max_length, prefix, keep_text, *map(tokenizer_digest, tokenizers)])
    encode = partial(encode_pairs, tokenizers=tokenizers, prefix=prefix, max_length=max_length, keep_text=keep_text)
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


def encode_pairs(
    batch: pa.RecordBatch,
    tokenizers: tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase],
    prefix: Sequence[int],
    max_length: int | None,
    keep_text: bool,
) -> pa.RecordBatch:
    """Rows of `tokenize` for some pairs, which depend on nothing but them and the arguments.

    Args:
        batch: columns `source` and `target`, text.
        tokenizers: of source and target.
        prefix: ids that go in front of every source.
        max_length: leave out pairs with a side of more tokens.
        keep_text: put the text behind the ids.
    """
    sources, targets = (batch.column(side).to_pylist() for side in PAIR)
    ids, labels = _encode(tokenizers[0], text=sources), _encode(tokenizers[1], text_target=targets)
    if prefix:
        ids = [[*prefix, *row] for row in ids]
    columns = {
        "input_ids": ids,
        "labels": labels,
        "source_length": list(map(len, ids)),
        "target_length": list(map(len, labels)),
    }
    features = TOKENIZED if keep_text else IDS
    texts = {side: batch.column(side) for side in PAIR} if keep_text else {}
    encoded = pa.RecordBatch.from_pydict(columns | texts, schema=features.arrow_schema)
    if max_length is None:
        return encoded
    longest = pc.max_element_wise(encoded["source_length"], encoded["target_length"])
    return encoded.filter(pc.less_equal(longest, max_length))


def _encode(tokenizer: PreTrainedTokenizerBase, **texts: list[str]) -> list[list[int]]:
    """Ids of texts, given as `text` or `text_target`, without padding or truncation."""
    if type(tokenizer) is PreTrainedTokenizerFast:  # transformers asks for the place of each piece in its text, as well
        backend = tokenizer.backend_tokenizer
        backend.no_padding()
        backend.no_truncation()
        backend.encode_special_tokens = tokenizer.split_special_tokens
        return [encoding.ids for encoding in backend.encode_batch_fast(*texts.values())]
    ids: list[list[int]] = tokenizer(**texts, return_attention_mask=False, return_token_type_ids=False, verbose=False)[
        "input_ids"
    ]
    return ids


def digest_of(dataset: Dataset) -> str:
    """Digest of the ids of a tokenised dataset in their order; of more pairs than [`DIGESTED`], of so many of them."""
    rows = np.linspace(0, len(dataset) - 1, min(len(dataset), DIGESTED), dtype=np.int64)
    table = dataset.with_format("arrow", columns=["input_ids", "labels"])
    digest = blake2b(digest_size=16)
    for start in range(0, len(rows), BATCH):
        part = table.select(rows[start : start + BATCH])[:]
        for name in ("input_ids", "labels"):
            ids = part[name].combine_chunks()
            digest.update(ids.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64).tobytes())
            digest.update(ids.flatten().to_numpy(zero_copy_only=False).astype(np.int64).tobytes())
    return digest.hexdigest()


def share_of(dataset: Dataset, column: str, token: int | None) -> float:
    """The share of a token among all of a column of ids; 0 for None, and of an empty column."""
    count = found = 0
    for table in dataset.with_format("arrow", columns=[column]).iter(100_000):
        for chunk in table[column].chunks:
            ids = chunk.flatten().to_numpy()
            count, found = count + len(ids), found + int((ids == token).sum())
    return found / max(1, count)
