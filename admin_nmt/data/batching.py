"""Batches under a token budget: planned once with numpy, shuffled by epoch, padded into tensors.

Lengths are numbers of tokens, end-of-sentence included. A batch of n sentences costs n times its longest sentence,
source or target, as fairseq counts it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..model.loss import IGNORED, shift_right, without_padding

IntArray = npt.NDArray[np.integer[Any]]
ReadLengths = Callable[[int, int], tuple[IntArray, IntArray]]  # of sources and targets, from one pair to before another

WINDOW = 1 << 22  # pairs that are sorted together where a corpus is too large to be sorted at once
BLOCK = 1 << 16


def batch_by_size(order: npt.ArrayLike, num_tokens: npt.ArrayLike, max_tokens: int) -> list[IntArray]:
    """Cuts an order of sentences greedily into batches that cost at most `max_tokens`; fairseq's `batch_by_size`.

    Args:
        order: sentence indices in the order in which batches are filled.
        num_tokens: length of every sentence, indexed by the values of `order`; for a pair max(source, target).
        max_tokens: budget of a batch: its number of sentences times its longest length.

    Returns:
        The batches, as views of `order`.

    Raises:
        ValueError: a sentence is empty or alone exceeds the budget.
    """
    order, num_tokens = np.asarray(order, dtype=np.intp), np.asarray(num_tokens)
    lengths = num_tokens[order]
    check_lengths(order, lengths, max_tokens)
    sizes = np.arange(1, len(order) + 1)
    batches, start = [], 0
    while start < len(order):
        # The longest length only grows along the order, so the first one bounds the size of the batch.
        window = lengths[start : start + max_tokens // int(lengths[start])]
        costs = np.maximum.accumulate(window) * sizes[: len(window)]
        size = int(costs.searchsorted(max_tokens, side="right"))
        batches.append(order[start : start + size])
        start += size
    return batches


def check_lengths(order: IntArray, lengths: IntArray, max_tokens: int) -> None:
    """Check that every sentence has tokens and fits a batch; errors call the sentences as `order` does.

    Raises:
        ValueError: naming the first one that is empty, or the longest one.
    """
    if len(order) == 0:
        return
    if lengths.min() < 1:
        raise ValueError(f"sentence {order[lengths.argmin()]} has no tokens; lengths include the end-of-sentence token")
    if lengths.max() > max_tokens:
        longest = lengths.argmax()
        raise ValueError(
            f"sentence {order[longest]} has {lengths[longest]} tokens, more than max_tokens={max_tokens}; "
            "raise max_tokens or filter out longer sentences"
        )


def batch_shapes(source_lengths: IntArray, target_lengths: IntArray, batches: Sequence[IntArray]) -> IntArray:
    """Pairs, longest source and longest target of each batch, [batches, 3]."""
    if not batches:
        return np.zeros((0, 3), dtype=np.int64)
    sizes = np.fromiter(map(len, batches), dtype=np.int64, count=len(batches))
    order, starts = np.concatenate(batches), np.append(0, sizes[:-1].cumsum())
    longest = [np.maximum.reduceat(lengths[order], starts) for lengths in (source_lengths, target_lengths)]
    return np.stack([sizes, *longest], axis=1)


def serpentine_order(source_lengths: npt.ArrayLike, target_lengths: npt.ArrayLike) -> IntArray:
    """Sorts pairs by target length, and by source length up and down in turn between neighbouring target lengths.

    The turns keep the source lengths of a batch close where it crosses from one target length to the next. Pairs of
    equal lengths keep their order.
    """
    source, target = _sort_key(source_lengths), _sort_key(target_lengths)
    if not len(source):
        return np.arange(0)
    low, high = source.min(), source.max()
    turn = np.cumsum(np.bincount(target) > 0) % 2 == 0
    place = np.where(turn[target], high - source, source - low)
    return np.lexsort((place, target))


def _sort_key(lengths: npt.ArrayLike) -> IntArray:
    """Lengths in 16 bits where they fit, because numpy sorts those in linear time."""
    lengths = np.asarray(lengths)
    fits = lengths.max(initial=0) <= np.iinfo(np.int16).max
    return lengths.astype(np.int16 if fits else np.int64)


def generation_batches(source_lengths: npt.ArrayLike, max_tokens: int) -> list[IntArray]:
    """Batches for translating or evaluating: sorted by source length, longest first, so that memory is soon known.

    A source longer than `max_tokens` makes a batch of its own: one long sentence must not stop a translation.
    """
    lengths = np.minimum(np.asarray(source_lengths, dtype=np.int64), max_tokens)
    order = np.argsort(-np.asarray(source_lengths, dtype=np.int64), kind="stable")
    return batch_by_size(order, lengths, max_tokens)


class TokenBatchSampler:
    """Batch sampler with a token budget, for `DataLoader(batch_sampler=...)` and accelerate.

    The batches are planned once, so every epoch has the same number of batches; an epoch shuffles their order by
    (seed, epoch) alone. Every process builds the same plan, and accelerate deals it out in whole batches. That needs
    an object without a `batch_size`: accelerate would drop or fill up batches of any other size.

    Args:
        source_lengths: source tokens of every pair.
        target_lengths: target tokens of every pair.
        max_tokens: budget of a batch: its number of pairs times its longest source or target.
        seed: of the shuffle.

    Raises:
        ValueError: the lengths disagree in number, or a pair is empty or alone exceeds the budget.
    """

    def __init__(
        self,
        source_lengths: npt.ArrayLike,
        target_lengths: npt.ArrayLike,
        max_tokens: int,
        *,
        seed: int,
    ) -> None:
        source, target = np.asarray(source_lengths), np.asarray(target_lengths)
        if source.shape != target.shape:
            raise ValueError(f"{len(source)} source lengths but {len(target)} target lengths; give one of each a pair")
        order = serpentine_order(source, target)
        self.batches = batch_by_size(order, np.maximum(source, target), max_tokens)
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the batches that the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        for index in np.random.default_rng((self.seed, self.epoch)).permutation(len(self.batches)):
            yield self.batches[index].tolist()


@dataclass(frozen=True)
class Survey:
    """Size of a plan of batches over an epoch.

    Attributes:
        pairs: their number.
        batches: their number.
        source_tokens: of all sources, with the end of each sentence.
        target_tokens: likewise.
        positions: of the padded sources and targets of all batches.
        shapes: pairs, longest source and longest target of the batches, each such triple once.
    """

    pairs: int = 0
    batches: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    positions: int = 0
    shapes: frozenset[tuple[int, int, int]] = frozenset()

    @classmethod
    def of(cls, source: IntArray, target: IntArray, batches: list[IntArray]) -> "Survey":
        """Survey of batches of pairs of these lengths, [pairs] each."""
        shapes = batch_shapes(source, target, batches)
        return cls(
            pairs=len(source),
            batches=len(batches),
            source_tokens=int(source.sum(dtype=np.int64)),
            target_tokens=int(target.sum(dtype=np.int64)),
            positions=int((shapes[:, 0] * (shapes[:, 1] + shapes[:, 2])).sum()),
            shapes=frozenset(map(tuple, np.unique(shapes, axis=0).tolist())),
        )

    @property
    def padding(self) -> float:
        """The share of the positions that holds no token."""
        return 1 - (self.source_tokens + self.target_tokens) / self.positions

    def __add__(self, other: "Survey") -> "Survey":
        sums = {name: value + getattr(other, name) for name, value in vars(self).items() if name != "shapes"}
        return Survey(**sums, shapes=self.shapes | other.shapes)


class WindowedBatchSampler:
    """Batch sampler as [`TokenBatchSampler`] for a corpus of any size: it holds lengths and batches of one window.

    A window is made of blocks of neighbouring pairs, drawn from all over the corpus: a sample of the whole that is yet
    read from a few places of its files. Within a window the batches are those of [`TokenBatchSampler`].
    Which blocks make a window, and so every batch, depends on the seed alone. An epoch shuffles the windows, and in
    each its batches, by (seed, epoch). One pass over all lengths counts the batches when this is made.

    Args:
        pairs: their number.
        read: gives the lengths of the pairs from one to before another, in any order of calls.
        max_tokens: budget of a batch: its number of pairs times its longest source or target.
        seed: of the choice of the windows and of the shuffles.
        window: pairs that are sorted together, about.
        block: neighbouring pairs that stay in one window.

    Attributes:
        survey: what an epoch comes to.

    Raises:
        ValueError: a pair is empty or alone exceeds the budget.
    """

    def __init__(
        self,
        pairs: int,
        read: ReadLengths,
        max_tokens: int,
        *,
        seed: int,
        window: int = WINDOW,
        block: int = BLOCK,
    ) -> None:
        self.pairs, self.read, self.max_tokens, self.block = pairs, read, max_tokens, block
        self.seed = seed
        self.epoch = 0
        blocks = np.random.default_rng(seed).permutation(-(-pairs // block))
        self.windows = np.array_split(blocks, -(-len(blocks) * block // max(window, block)))
        self.survey = sum((Survey.of(*self._plan(window)[1:]) for window in self.windows), Survey())

    def _plan(self, blocks: IntArray) -> tuple[IntArray, IntArray, IntArray, list[IntArray]]:
        """Indices and lengths of the pairs of these blocks, and the batches, of places among them."""
        bounds = [(int(b) * self.block, min((int(b) + 1) * self.block, self.pairs)) for b in np.sort(blocks)]
        index = np.concatenate([np.arange(start, stop) for start, stop in bounds])
        source, target = (np.concatenate(side) for side in zip(*(self.read(*b) for b in bounds), strict=True))
        longest = np.maximum(source, target)
        check_lengths(index, longest, self.max_tokens)
        order = serpentine_order(source, target)
        return index, source, target, batch_by_size(order, longest, self.max_tokens)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the order of the batches that the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.survey.batches

    def __iter__(self) -> Iterator[list[int]]:
        epoch = self.epoch
        for window in np.random.default_rng((self.seed, epoch)).permutation(len(self.windows)):
            index, _, _, batches = self._plan(self.windows[window])
            for number in np.random.default_rng((self.seed, epoch, window)).permutation(len(batches)):
                yield index[batches[number]].tolist()


class Seq2SeqCollator:
    """Pads tokenised pairs on the right into int64 tensors [batch, longest].

    Gives `input_ids`, `attention_mask` and, where the pairs have them, `labels`; other columns are left out.

    Args:
        pad_token_id: fills `input_ids`; where `labels` hold it, it becomes −100, as it is before the Trainer counts.
        decoder_start_token_id: if given, adds `decoder_input_ids`, the labels moved right by one behind this id, for
            losses that take `labels` away from the model.
    """

    def __init__(self, pad_token_id: int, decoder_start_token_id: int | None = None) -> None:
        self.pad_token_id = pad_token_id
        self.decoder_start_token_id = decoder_start_token_id

    def __call__(self, pairs: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        input_ids, attention_mask = self._pad([pair["input_ids"] for pair in pairs], self.pad_token_id)
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        if "labels" in pairs[0]:
            labels, _ = self._pad([pair["labels"] for pair in pairs], IGNORED)
            batch["labels"] = labels = without_padding(labels, self.pad_token_id)
            if self.decoder_start_token_id is not None:
                batch["decoder_input_ids"] = shift_right(labels, self.decoder_start_token_id, self.pad_token_id)
        return batch

    def _pad(self, rows: Sequence[Sequence[int]], value: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids [n, width] filled up with `value`, and the mask [n, width] of what is not filled up."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        mask = np.arange(lengths.max()) < lengths[:, None]
        padded = np.full(mask.shape, value, dtype=np.int64)
        padded[mask] = np.fromiter(chain.from_iterable(rows), np.int64, lengths.sum())
        return torch.from_numpy(padded), torch.from_numpy(mask.astype(np.int64))
