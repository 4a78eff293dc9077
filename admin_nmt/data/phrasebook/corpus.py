"""The corpus of the phrasebook: sentences drawn from its clauses and questions, no two alike, in three splits."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

from ...system.files import write_text_whole
from . import lexicon
from .clauses import TOPICS
from .examples import EXAMPLES
from .lexicon import Pair
from .questions import QUESTIONS

Splits = dict[str, list[Pair]]

PATIENCE = 2_000  # sentences in a row without a new one, after which the grammar counts as exhausted


def _sentence(rng: Random) -> Pair:
    """A statement, the plain ones most often, or a question."""
    if rng.random() < 0.1:
        english, german = _greeted(rng, rng.choice(QUESTIONS)(rng))
    else:
        english, german = _said(rng)
    return english[0].upper() + english[1:], german[0].upper() + german[1:]


def _greeted(rng: Random, question: Pair) -> Pair:
    if rng.random() < 0.5:
        return question
    hello, hallo = rng.choice(lexicon.GREETINGS)
    return f"{hello}, {question[0]}", f"{hallo}, {question[1]}"


def _said(rng: Random) -> Pair:
    clause, order = rng.choice(TOPICS)(rng), rng.random()
    if order < 0.1 and clause.question:
        return _greeted(rng, (f"{clause.question}?", f"{clause.inverted()}?"))
    if order < 0.6:
        return f"{clause.english}.", f"{clause.main()}."
    if order < 0.75:
        frame, rahmen = rng.choice(lexicon.ADVERB_FRAMES)
        return frame.format(clause.english), rahmen.format(clause.inverted())
    frame, rahmen = rng.choice(lexicon.SUBORDINATE_FRAMES)
    return frame.format(clause.english), rahmen.format(clause.subordinate())


def _distinct_pairs(rng: Random) -> Iterator[Pair]:
    """Sentences without end, no English and no German one of them twice, and none that is an example."""
    seen = {sentence for pair in EXAMPLES.items() for sentence in pair}
    start, repeats = len(seen), 0
    while repeats < PATIENCE:
        english, german = _sentence(rng)
        if english in seen or german in seen:
            repeats += 1
            continue
        seen.update((english, german))
        repeats = 0
        yield english, german
    raise ValueError(f"The grammar has no more than about {(len(seen) - start) // 2} distinct pairs: ask for fewer.")


def phrasebook(size: int = 40_000, valid: int = 500, test: int = 500, seed: int = 0) -> Splits:
    """Makes the corpus: {"train": pairs, "valid": pairs, "test": pairs} of (English, German) sentences.

    No sentence of either language occurs twice in all splits together, and none is one of `EXAMPLES`. The same
    arguments give the same pairs in every process; test and validation pairs depend on the seed and their own sizes,
    not on the size of the training split.

    Raises:
        ValueError: the grammar cannot make so many distinct pairs.
    """
    pairs = _distinct_pairs(Random(seed))
    held_out = {"test": list(islice(pairs, test)), "valid": list(islice(pairs, valid))}
    return {"train": list(islice(pairs, size)), **held_out}


def write_phrasebook(
    folder: str | Path, size: int = 40_000, valid: int = 500, test: int = 500, seed: int = 0
) -> dict[str, tuple[Path, Path]]:
    """Writes the corpus as train.en, train.de, valid.en, ..., a sentence a line; returns {split: (English, German)}."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for split, pairs in phrasebook(size, valid, test, seed).items():
        paths[split] = (folder / f"{split}.en", folder / f"{split}.de")
        for language, path in enumerate(paths[split]):
            write_text_whole(path, "".join(f"{pair[language]}\n" for pair in pairs))
    return paths


BUILTIN_CORPORA = {"phrasebook": write_phrasebook}
"""What a recipe's `data.builtin` may name, each with the function that writes it to a folder."""
