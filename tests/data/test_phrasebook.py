import hashlib
import os
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admin_nmt.data import phrasebook as grammar
from admin_nmt.data.phrasebook import Clause, phrasebook, write_phrasebook

SIZES = {"size": 3000, "valid": 200, "test": 100}

# Checked by eye: the German is correct, and each pair shows something that a model has to learn.
GOLDEN = [
    # the separable prefix, apart and joined; midnight and one o'clock
    ("The ship from Cologne arrives at 1:08 AM.", "Das Schiff aus Köln kommt um ein Uhr acht an."),
    (
        "It is good that the temperature in Warsaw at 12:21 AM is minus 13 degrees Celsius.",
        "Es ist gut, dass die Temperatur in Warschau um null Uhr einundzwanzig minus dreizehn Grad Celsius beträgt.",
    ),
    (
        "I know that the ship from Zurich arrives at half past ten in the morning.",
        "Ich weiß, dass das Schiff aus Zürich um halb elf morgens ankommt.",
    ),
    (
        "Do you know whether the lecture takes place on Saturday, December 3?",
        "Weißt du, ob der Vortrag am Samstag, dem dritten Dezember, stattfindet?",
    ),
    # participle and infinitive at the end, the finite verb behind them in a subordinate clause
    ("My son bought one hat for £3.50.", "Mein Sohn hat einen Hut für 3,50 £ gekauft."),
    (
        "I am happy because Thomas bought one heavy hat for $7,426.25.",
        "Ich freue mich, weil Thomas einen schweren Hut für 7.426,25 $ gekauft hat.",
    ),
    (
        "I know that our teacher wants to order 8 apples for my mother.",
        "Ich weiß, dass unser Lehrer acht Äpfel für meine Mutter bestellen will.",
    ),
    (
        "Do you believe that Anna was born on February 9, 1976?",
        "Glaubst du, dass Anna am neunten Februar neunzehnhundertsechsundsiebzig geboren wurde?",
    ),
    # the verb before its subject; dative before accusative
    (
        "According to the newspaper, eight percent of the men drink tea in the morning.",
        "Laut der Zeitung trinken acht Prozent der Männer morgens Tee.",
    ),
    (
        "I know that my sister gives one beautiful book to our son.",
        "Ich weiß, dass meine Schwester unserem Sohn ein schönes Buch gibt.",
    ),
    # gender, case and number
    ("The library in Warsaw closes in one month.", "Die Bibliothek in Warschau schließt in einem Monat."),
    ("The church in Copenhagen opens in one minute.", "Die Kirche in Kopenhagen öffnet in einer Minute."),
    ("The museum in Paris opens in 29 days.", "Das Museum in Paris öffnet in neunundzwanzig Tagen."),
    ("The park is 82 meters from the bakery.", "Der Park liegt zweiundachtzig Meter von der Bäckerei entfernt."),
    ("His son is one week older than your sister.", "Sein Sohn ist eine Woche älter als deine Schwester."),
    (
        "His grandmother needs 680 kilograms of water and one red bag.",
        "Seine Großmutter braucht sechshundertachtzig Kilogramm Wasser und eine rote Tasche.",
    ),
    (
        "Do you believe that the blue dresses cost 448 US dollars and eighty cents?",
        "Glaubst du, dass die blauen Kleider vierhundertachtundvierzig US-Dollar und achtzig Cent kosten?",
    ),
    (
        "As you see, the phone number of my brother is 472.",
        "Wie du siehst, lautet die Telefonnummer von meinem Bruder vier sieben zwei.",
    ),
    (
        "I am happy because my mother lives in the 39th house behind the theater.",
        "Ich freue mich, weil meine Mutter im neununddreißigsten Haus hinter dem Theater wohnt.",
    ),
]


@pytest.fixture(scope="module")
def corpus() -> grammar.Splits:
    return phrasebook(**SIZES, seed=0)


@pytest.mark.parametrize("english, german", GOLDEN)
def test_golden_pairs(corpus, english, german):
    assert dict(corpus["train"])[english] == german


def test_word_orders():
    clause = Clause("the concert takes place today", "das Konzert", "findet", "heute", prefix="statt")
    assert clause.main() == "das Konzert findet heute statt"
    assert clause.inverted() == "findet das Konzert heute statt"
    assert clause.subordinate() == "das Konzert heute stattfindet"

    clause = Clause("I have read it", "ich", "habe", "es", last="gelesen")
    assert clause.main() == "ich habe es gelesen"
    assert clause.inverted() == "habe ich es gelesen"
    assert clause.subordinate() == "ich es gelesen habe"


def test_splits_have_the_sizes_asked_for(corpus):
    assert {split: len(pairs) for split, pairs in corpus.items()} == {"train": 3000, "valid": 200, "test": 100}


def test_no_sentence_occurs_twice_in_either_language(corpus):
    """So the splits are disjoint on both sides, and no source has two translations."""
    pairs = [pair for split in corpus.values() for pair in split]
    for sentences in zip(*pairs, strict=True):
        assert len(set(sentences)) == len(pairs)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_sentences_are_clean_lines_for_every_seed(seed):
    for pair in phrasebook(size=30, valid=0, test=0, seed=seed)["train"]:
        for sentence in pair:
            assert sentence.isprintable() and sentence == " ".join(sentence.split())
            assert sentence[0].isupper() or sentence[0].isdigit()
            assert sentence[-1] in ".?"
            assert 3 <= len(sentence.split()) <= 25


@pytest.mark.parametrize("topic", grammar.TOPICS, ids=lambda topic: topic.__name__)
def test_no_topic_repeats_itself(topic):
    assert len({topic(Random(seed)) for seed in range(50)}) > 40


def test_same_pairs_in_another_process(corpus):
    program = (
        "import hashlib; from admin_nmt.data.phrasebook import phrasebook; "
        f"print(hashlib.sha256(repr(phrasebook(**{SIZES}, seed=0)).encode()).hexdigest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == hashlib.sha256(repr(corpus).encode()).hexdigest()


def test_seeds_differ():
    assert phrasebook(20, 5, 5, seed=1) != phrasebook(20, 5, 5, seed=2)


def test_held_out_pairs_do_not_depend_on_the_training_size(corpus):
    smaller = phrasebook(10, 200, 100, seed=0)
    assert smaller == corpus | {"train": corpus["train"][:10]}


def test_asking_for_more_than_the_grammar_has_is_an_error(monkeypatch):
    monkeypatch.setattr(grammar, "TOPICS", (lambda rng: Clause("it rains", "es", "regnet", ""),))
    with pytest.raises(ValueError, match=r"no more than about 1\d distinct pairs"):
        phrasebook(100, 0, 0)


def test_written_files_hold_the_corpus(corpus, tmp_path):
    folder = tmp_path / "new" / "folder"
    paths = write_phrasebook(folder, **SIZES, seed=0)
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{split}.{language}" for split in ("test", "train", "valid") for language in ("de", "en")
    ]
    for split, pairs in corpus.items():
        columns = [path.read_bytes().decode("utf-8").split("\n") for path in paths[split]]
        assert [column.pop() for column in columns] == ["", ""]
        assert list(zip(*columns, strict=True)) == pairs


def test_writing_replaces_an_earlier_corpus(tmp_path):
    write_phrasebook(tmp_path, size=20, valid=0, test=0, seed=1)
    paths = write_phrasebook(tmp_path, size=5, valid=0, test=0, seed=2)
    assert len(paths["train"][0].read_text(encoding="utf-8").splitlines()) == 5
    assert paths["valid"][0].read_bytes() == b""
