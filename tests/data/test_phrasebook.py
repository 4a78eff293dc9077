import hashlib
import os
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admin_nmt.data.phrasebook import corpus as grammar
from admin_nmt.data.phrasebook import phrasebook, write_phrasebook
from admin_nmt.data.phrasebook.clauses import TOPICS, Clause
from admin_nmt.data.phrasebook.examples import EXAMPLES
from admin_nmt.data.phrasebook.questions import QUESTIONS

SIZES = {"size": 3000, "valid": 200, "test": 100}

# Checked by eye: the German is correct, and each pair shows something that a model has to learn.
GOLDEN = [
    # times: midnight, one o'clock, the half hour that German counts up to
    ("Julia, is it 12:35 AM?", "Julia, ist es null Uhr fünfunddreißig?"),
    ("The party ends at twenty to one.", "Die Feier endet um zwanzig vor eins."),
    (
        "The film is on Sunday, the first of June, at half past eleven.",
        "Der Film ist am Sonntag, dem ersten Juni, um halb zwölf.",
    ),
    ("The restaurant opens tomorrow at a quarter to two.", "Das Restaurant öffnet morgen um Viertel vor zwei."),
    ("Excuse me, is it 8 PM?", "Entschuldigung, ist es zwanzig Uhr?"),
    # the separable prefix, apart and joined
    (
        "Unfortunately, the night train arrives at 1:23 PM.",
        "Leider kommt der Nachtzug um dreizehn Uhr dreiundzwanzig an.",
    ),
    ("I am happy because I will arrive at 11:07 AM.", "Ich freue mich, weil ich um elf Uhr sieben ankommen werde."),
    ("The bus leaves in one day.", "Der Bus fährt in einem Tag ab."),
    # participle and infinitive at the end, the finite verb behind them in a subordinate clause
    ("He bought one blue shoe.", "Er hat einen blauen Schuh gekauft."),
    ("We want to order three windows.", "Wir wollen drei Fenster bestellen."),
    (
        "He asks whether four doctors can order 700 kilograms of butter for my father.",
        "Er fragt, ob vier Ärzte siebenhundert Kilogramm Butter für meinen Vater bestellen können.",
    ),
    (
        "Of course, our brother was born on February 19, 2010.",
        "Natürlich wurde unser Bruder am neunzehnten Februar zweitausendzehn geboren.",
    ),
    (
        "I know that the bakery is open from 3:20 to 11:01.",
        "Ich weiß, dass die Bäckerei von drei Uhr zwanzig bis elf Uhr eins geöffnet ist.",
    ),
    # the verb before its subject; dative before accusative
    ("Maria, how many pens do forty pupils need?", "Maria, wie viele Stifte brauchen vierzig Schüler?"),
    ("Does the meeting begin at twenty to three?", "Beginnt die Sitzung um zwanzig vor drei?"),
    (
        "Unfortunately, her mother gives ten letters to your daughter.",
        "Leider gibt ihre Mutter deiner Tochter zehn Briefe.",
    ),
    # person, gender, case and number
    ("Would Anna like thirty-nine kilograms of oranges?", "Möchte Anna neununddreißig Kilogramm Orangen?"),
    ("Julia, are you 13 months younger than my sister?", "Julia, bist du dreizehn Monate jünger als meine Schwester?"),
    ("As you see, his teacher arrives in one minute.", "Wie du siehst, kommt sein Lehrer in einer Minute an."),
    ("Your teacher is one week older than my child.", "Dein Lehrer ist eine Woche älter als mein Kind."),
    ("Maria paid eighty-one US dollars for the book.", "Maria hat einundachtzig US-Dollar für das Buch bezahlt."),
    ("There are two children in the garden.", "Es gibt zwei Kinder im Garten."),
    ("It is minus four degrees Celsius in Geneva.", "Es sind minus vier Grad Celsius in Genf."),
    # numbers
    ("Of course, 5 hats cost 2000 dollars.", "Natürlich kosten fünf Hüte zweitausend Dollar."),
    ("Two dogs cost $7.99.", "Zwei Hunde kosten 7,99 $."),
    ("The telephone number of your son is 9399.", "Die Telefonnummer von deinem Sohn lautet neun drei neun neun."),
    ("Your aunt lives in the sixteenth street.", "Deine Tante wohnt in der sechzehnten Straße."),
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

    clause = Clause("it ends on Monday, May 1", "es", "endet", "am Montag, dem ersten Mai,")
    assert clause.main() == "es endet am Montag, dem ersten Mai"
    assert clause.subordinate() == "es am Montag, dem ersten Mai, endet"


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
            assert 2 <= len(sentence.split()) <= 30


@pytest.mark.parametrize("topic", [*dict.fromkeys(TOPICS), *QUESTIONS], ids=lambda topic: topic.__name__)
def test_no_topic_repeats_itself(topic):
    assert len({topic(Random(seed)) for seed in range(200)}) > (150 if topic in TOPICS else 10)


def test_half_of_the_sentences_are_short(corpus):
    """What people type first: plain sentences of a few words."""
    words = sorted(len(english.split()) for english, _ in corpus["train"])
    assert words[len(words) // 2] <= 8


def test_no_example_is_in_the_corpus(monkeypatch):
    """Each of them would be drawn sooner or later if nothing kept it out."""
    pairs = phrasebook(60, 20, 20, seed=4)["train"]
    known = dict(EXAMPLES) | dict(pairs[:3])
    monkeypatch.setattr(grammar, "EXAMPLES", known)
    drawn = {sentence for split in phrasebook(60, 20, 20, seed=4).values() for pair in split for sentence in pair}
    assert not drawn & {sentence for pair in known.items() for sentence in pair}


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
    monkeypatch.setattr(grammar, "QUESTIONS", (lambda rng: ("does it rain?", "regnet es?"),))
    with pytest.raises(ValueError, match=r"no more than about \d\d distinct pairs"):
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
