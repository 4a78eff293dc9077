"""Batches of a corpus whose lengths are too many to be sorted at once: planned a window at a time.

A window is made of blocks of neighbouring pairs, drawn from all over the corpus: a sample of the whole that is yet read
from a few places of its files. Within a window the batches are those of [`TokenBatchSampler`].
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from datasets import Dataset

from .batching import IntArray, TokenBatchSampler, batch_by_size, batch_shapes, check_lengths, serpentine_order
from .tokenizing import pair_lengths

WHOLE = 1 << 26  # pairs of the largest corpus that is planned at once
WINDOW = 1 << 22  # pairs of a larger one that are sorted together
BLOCK = 1 << 16

ReadLengths = Callable[[int, int], tuple[IntArray, IntArray]]  # of sources and targets, from one pair to before another


@dataclass(frozen=True)
class Survey:
    """What a plan of batches comes to over an epoch.

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
        """That of batches of pairs of these lengths, [pairs] each."""
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
    """As [`TokenBatchSampler`], for a corpus of any size: it holds the lengths and the batches of one window.

    Which blocks make a window, and so every batch, depends on the seed alone. An epoch shuffles the windows, and in
    each its batches, by (seed, epoch). One pass over all lengths counts the batches when this is made.

    Args:
        pairs: their number.
        read: gives the lengths of the pairs from one to before another, in any order of calls.
        max_tokens: budget of a batch: its number of pairs times its longest source or target.
        seed: of the choice of the windows and of the shuffles.
        multiple: preferred divisor of the number of pairs in a batch.
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
        multiple: int = 1,
        window: int = WINDOW,
        block: int = BLOCK,
    ) -> None:
        self.pairs, self.read, self.max_tokens, self.multiple, self.block = pairs, read, max_tokens, multiple, block
        self.seed = seed
        self.epoch = 0
        blocks = np.random.default_rng(seed).permutation(-(-pairs // block))
        self.windows = np.array_split(blocks, -(-len(blocks) * block // max(window, block)))
        self.survey = sum((Survey.of(*self._plan(window)[1:]) for window in self.windows), Survey())

    def _plan(self, blocks: IntArray) -> tuple[IntArray, IntArray, IntArray, list[IntArray]]:
        """Of the pairs of these blocks the indices and lengths, and the batches, of places among them."""
        bounds = [(int(b) * self.block, min((int(b) + 1) * self.block, self.pairs)) for b in np.sort(blocks)]
        index = np.concatenate([np.arange(start, stop) for start, stop in bounds])
        source, target = (np.concatenate(side) for side in zip(*(self.read(*b) for b in bounds), strict=True))
        longest = np.maximum(source, target)
        check_lengths(index, longest, self.max_tokens)
        order = serpentine_order(source, target)
        return index, source, target, batch_by_size(order, longest, self.max_tokens, self.multiple)

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


def batch_sampler(dataset: Dataset, max_tokens: int, *, seed: int) -> TokenBatchSampler | WindowedBatchSampler:
    """The batches of a tokenised dataset: planned at once, or in windows where it has more than [`WHOLE`] pairs.

    Raises:
        ValueError: a pair is empty or alone exceeds the budget.
    """
    if len(dataset) <= WHOLE:
        return TokenBatchSampler(*pair_lengths(dataset), max_tokens, seed=seed)
    return WindowedBatchSampler(len(dataset), partial(pair_lengths, dataset), max_tokens, seed=seed)


def survey(dataset: Dataset, max_tokens: int, *, seed: int) -> Survey:
    """What an epoch of [`batch_sampler`] comes to."""
    plan = batch_sampler(dataset, max_tokens, seed=seed)
    return plan.survey if isinstance(plan, WindowedBatchSampler) else Survey.of(*pair_lengths(dataset), plan.batches)


def longest_sentence(dataset: Dataset) -> int:
    """Tokens of the longest source or target of a tokenised dataset, whose lengths are read in parts."""
    parts = (pair_lengths(dataset, start, start + WINDOW) for start in range(0, len(dataset), WINDOW))
    return max(int(side.max()) for sides in parts for side in sides)
