"""The built-in phrasebook: a small English-German corpus for runs without a download.

Its sentences are about numbers: times, dates, prices, quantities, ages, distances. They were drawn from the grammar in
training/phrasebook_grammar.py, and lie in the wheel as one file of 41,000 pairs, no sentence of either language twice.
"""

import bz2
from itertools import islice
from pathlib import Path

from ..system.files import write_text_whole

Pair = tuple[str, str]  # English, German
Splits = dict[str, list[Pair]]

FILE = Path(__file__).with_name("phrasebook.tsv.bz2")
SIZES = {"test": 500, "valid": 500, "train": 40_000}  # in the order of the file
EXAMPLES = {
    "Two kites cost ten euros.": "Zwei Drachen kosten zehn Euro.",
    "Two books cost ten euros.": "Zwei Bücher kosten zehn Euro.",
    "The kite costs ten euros.": "Der Drachen kostet zehn Euro.",
    "The kite is behind the shop.": "Der Drachen ist hinter dem Laden.",
    "They did not know that the market in Lisbon opens in five days.": (
        "Sie wussten nicht, dass der Markt in Lissabon in fünf Tagen öffnet."
    ),
    "My boss is angry because 76% of the pupils speak German.": (
        "Mein Chef ist wütend, weil sechsundsiebzig Prozent der Schüler Deutsch sprechen."
    ),
    "As you see, my child gives 7 clocks to your aunt.": "Wie du siehst, gibt mein Kind deiner Tante sieben Uhren.",
}
"""English sentences with the German that the model gives. The corpus has none of them, so nothing is remembered."""


def phrasebook(size: int = SIZES["train"], valid: int = SIZES["valid"], test: int = SIZES["test"]) -> Splits:
    """The corpus: {"train": pairs, "valid": pairs, "test": pairs} of (English, German) sentences.

    The first pairs of the file are those of `test`, then come those of `valid` and of `train`: of other sizes than the
    corpus has, each split begins where the one before it ends.

    Raises:
        ValueError: the file has fewer pairs.
    """
    if size + valid + test > sum(SIZES.values()):
        raise ValueError(
            f"the phrasebook has {sum(SIZES.values()):,} pairs, and {size + valid + test:,} were asked for"
        )
    with bz2.open(FILE, "rt", encoding="utf-8", newline="\n") as lines:
        pairs = ((english, german) for english, german in (line.rstrip("\n").split("\t") for line in lines))
        held_out = {"test": list(islice(pairs, test)), "valid": list(islice(pairs, valid))}
        return {"train": list(islice(pairs, size)), **held_out}


def write_phrasebook(folder: str | Path) -> dict[str, tuple[Path, Path]]:
    """Writes the corpus as train.en, train.de, valid.en, ..., a sentence a line; returns {split: (English, German)}."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for split, pairs in phrasebook().items():
        paths[split] = (folder / f"{split}.en", folder / f"{split}.de")
        for language, path in enumerate(paths[split]):
            write_text_whole(path, "".join(f"{pair[language]}\n" for pair in pairs))
    return paths


BUILTIN_CORPORA = {"phrasebook": write_phrasebook}
"""Names for a recipe's `data.builtin`, each with the function that writes the corpus to a folder."""
