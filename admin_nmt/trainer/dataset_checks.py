"""What a trainer refuses of the datasets that it is given."""

from collections.abc import Iterator
from typing import Any

from datasets import Dataset, IterableDataset
from torch.utils.data import IterableDataset as TorchIterableDataset

from ..data.tokenizing import longest_sentence


def refuse_streams(**datasets: Any) -> None:
    """Refuse datasets without an order and a length.

    Raises:
        ValueError: naming the first.
    """
    for name, dataset in single(datasets):
        if isinstance(dataset, TorchIterableDataset | IterableDataset):
            raise ValueError(
                f"{name} is a stream: token batches are planned from the lengths of all pairs, and a run that "
                "goes on looks its place up; load it without streaming=True, or write it to the disk with "
                "Dataset.from_generator: it is read from there, not into memory"
            )


def refuse_long(positions: int | None, **datasets: Any) -> None:
    """Refuse datasets with a sentence that a model cannot read: training would end where it comes to it.

    Args:
        positions: most tokens of a sentence; None for a model without a limit.
        datasets: tokenised ones.

    Raises:
        ValueError: naming the first.
    """
    for name, dataset in single(datasets):
        if positions is not None and (longest := longest_sentence(dataset)) > positions:
            raise ValueError(
                f"{name}: a sentence has {longest} tokens, more than the model's max_position_embeddings {positions}; "
                f"leave such pairs out: tokenize(..., max_length={positions})"
            )


def single(datasets: dict[str, Any]) -> Iterator[tuple[str, Dataset]]:
    """Each dataset that is given and not known to be empty, also those of a dict, by the name of its argument."""
    for name, given in datasets.items():
        for dataset in given.values() if isinstance(given, dict) else [given]:
            if dataset is not None and (not hasattr(dataset, "__len__") or len(dataset)):
                yield name, dataset
