"""The NLL of a model that knows nothing but how often each token occurs: where a run that learns nothing is stuck."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from datasets import Dataset, DatasetDict

from ..system.files import json_text

FILE = "unigram.json"
BATCH = 100_000  # pairs that are counted together

Counts = npt.NDArray[np.int64]


def target_counts(dataset: Dataset, vocab_size: int) -> Counts:
    """Count each token [vocab_size] in the column `labels`, read from the mapped files in batches."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for table in dataset.with_format("arrow", columns=["labels"]).iter(BATCH):
        for chunk in table["labels"].chunks:
            counts += np.bincount(chunk.flatten().to_numpy(), minlength=vocab_size)
    return counts


def unigram_nll(train: Counts, valid: Counts) -> float:
    """Nats per token of `valid` under the frequencies in `train`, every token of the vocabulary counted once more."""
    log_p = np.log((train + 1) / (train.sum() + len(train)))
    return -float(valid @ log_p) / int(valid.sum())


def write_unigram(data: DatasetDict, vocab_size: int, folder: Path) -> None:
    """Leave the unigram NLL of the targets of `valid` in a folder, if there is a validation set beside `train`."""
    if "valid" in data:
        train, valid = (target_counts(data[split], vocab_size) for split in ("train", "valid"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json_text({"valid_nll": unigram_nll(train, valid)}) + "\n")


def read_unigram(folder: Path) -> float | None:
    """Read what `write_unigram` left; None if it did not."""
    path = folder / FILE
    try:
        return float(json.loads(path.read_bytes())["valid_nll"]) if path.exists() else None
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: is damaged; delete it and give the same command again") from error
