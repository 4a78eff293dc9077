"""The NLL of a model that knows nothing but how often each token occurs: where a run that learns nothing is stuck."""

import json
import math
from collections import Counter
from itertools import chain
from pathlib import Path

from recipe import Prepared

FILE = "unigram.json"


def unigram_nll(train: list[list[int]], valid: list[list[int]], vocab_size: int) -> float:
    """Nats per token of `valid` under the frequencies in `train`, every token of the vocabulary counted once more."""
    counts = Counter(chain.from_iterable(train))
    total = counts.total() + vocab_size
    tokens = list(chain.from_iterable(valid))
    return -sum(math.log((counts[token] + 1) / total) for token in tokens) / len(tokens)


def write_unigram(prepared: Prepared, folder: Path) -> None:
    """Leave the unigram NLL of the validation set's targets in a folder, if there is a validation set."""
    if "valid" in prepared.data:
        data = prepared.data
        labels = [data[split].with_format("numpy", columns=["labels"])["labels"][:] for split in ("train", "valid")]
        train, valid = ([row.tolist() for row in rows] for rows in labels)
        folder.mkdir(parents=True, exist_ok=True)
        nll = unigram_nll(train, valid, len(prepared.target_tokenizer))
        (folder / FILE).write_text(json.dumps({"valid_nll": nll}) + "\n")


def read_unigram(folder: Path) -> float | None:
    """What `write_unigram` left, if it did."""
    path = folder / FILE
    return json.loads(path.read_text())["valid_nll"] if path.exists() else None
