"""Toy corpora of the tests, random pairs as ids and as text, and ways to interrupt a run."""

import math
import random

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Trainer, TrainerCallback

from admin_nmt.tokenization import train_tokenizer

WORDS = [letters + ending for letters in ("ba", "do", "ki", "mu", "re") for ending in ("", "l", "n", "tu", "ro")]


def random_ids(pairs: int, seed: int = 0, vocabulary: int = 99, longest: int = 12) -> Dataset:
    """Tokenised pairs of random ids, of 2 to `longest` tokens with the end of sentence."""
    draw = random.Random(seed)
    ids = range(2, vocabulary - 1)

    def sentence() -> list[int]:
        return [*draw.choices(ids, k=draw.randint(1, longest - 1)), 0]

    return with_lengths([{"input_ids": sentence(), "labels": sentence()} for _ in range(pairs)])


def random_texts(count: int, seed: int = 0) -> list[str]:
    """Sentences of 1 to 8 made-up words, capitalised and with a full stop."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 8))).capitalize() + "." for _ in range(count)]


def toy_tokenizer(seed: int = 0, vocab_size: int = 300) -> PreTrainedTokenizerFast:
    """Byte-level BPE over `random_texts`."""
    return train_tokenizer(random_texts(200, seed), vocab_size)


def text_pairs(tokenizer: PreTrainedTokenizerFast, pairs: int, seed: int = 0) -> Dataset:
    """Tokenised pairs with their raw text: the target has the source's words in reverse order."""
    rows = []
    for source in random_texts(pairs, seed):
        target = " ".join(reversed(source.split()))
        ids = {"input_ids": tokenizer(source)["input_ids"], "labels": tokenizer(target)["input_ids"]}
        rows.append(ids | {"source": source, "target": target})
    return with_lengths(rows)


def with_lengths(rows: list[dict]) -> Dataset:
    """A dataset of these rows with the columns of lengths."""
    lengths = [{"source_length": len(row["input_ids"]), "target_length": len(row["labels"])} for row in rows]
    return Dataset.from_list([row | length for row, length in zip(rows, lengths, strict=True)])


class StopAfter(TrainerCallback):
    """Saves a checkpoint after an update and stops the run there."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.update:
            control.should_save = control.should_training_stop = True


def poison(model: PreTrainedModel, run: Trainer, update: int) -> None:
    """Makes the decoder's output NaN at an update."""

    def hook(module, args, output):
        return output * math.nan if run.state.global_step == update - 1 else output

    model.model.decoder.layers[-1].register_forward_hook(hook)
