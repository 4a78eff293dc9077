"""A small English-German corpus made by a grammar, for runs without a download.

Its sentences are about numbers: times, dates, prices, quantities, ages, distances, ordinals, strings of digits. A model
has to read digits and number words, to agree in gender, case and number, and to place the German verb: second in a
statement, before its subject after an adverb, last in a subordinate clause, with a prefix or participle that moves
apart. Spelled numbers come from num2words; the names of days, months, currencies and units and the formats of numbers
from Babel (CLDR).
"""

import datetime
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from babel.dates import format_date, format_time
from babel.numbers import format_currency, format_decimal, format_percent, get_currency_name
from babel.units import format_unit
from num2words import num2words

from ..files import write_text_whole
from . import lexicon
from .lexicon import Noun, Pair

Splits = dict[str, list[Pair]]

PATIENCE = 2_000  # sentences in a row without a new one, after which the grammar counts as exhausted


class Clause(NamedTuple):
    """A statement: its English, and its German in the parts that word order moves.

    `last` is the participle or infinitive that closes the clause, `prefix` the separable prefix of the finite verb.
    """

    english: str
    subject: str
    verb: str
    middle: str
    last: str = ""
    prefix: str = ""

    def main(self) -> str:
        return _join(self.subject, self.verb, self.middle, self.last, self.prefix)

    def inverted(self) -> str:
        return _join(self.verb, self.subject, self.middle, self.last, self.prefix)

    def subordinate(self) -> str:
        return _join(self.subject, self.middle, self.last, self.prefix + self.verb)


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


@cache
def _spell(number: int, language: str, form: str = "cardinal") -> str:
    return num2words(number, lang=language, to=form)


def _plain(text: str) -> str:
    """CLDR separates with no-break spaces; a corpus to be typed has plain ones."""
    return text.replace("\u202f", " ").replace("\xa0", " ")


def _number(rng: Random, low: int = 2, high: int = 999) -> int:
    """A number, small ones more often, and none like 101, whose form before a German noun is disputed."""
    number = rng.randint(low, min(high, 10 ** rng.randint(len(str(low)), len(str(high))) - 1))
    return number + 1 if number % 100 == 1 and number > 1 else number


def _english(rng: Random, number: int) -> str:
    return _spell(number, "en") if number < 1000 and rng.random() < 0.5 else format_decimal(number, locale="en")


def _german(number: int) -> str:
    return _spell(number, "de")


def _count(rng: Random, noun: Noun, number: int, case: str = "accusative") -> Pair:
    """A number of things, in the accusative or, for time spans, in the dative."""
    if number == 1:
        return f"one {noun.english}", f"ein{lexicon.EIN_ENDING[case][noun.gender]} {noun.german}"
    dative = "" if case != "dative" or noun.german_plural.endswith("n") else "n"
    return f"{_english(rng, number)} {noun.english_plural}", f"{_german(number)} {noun.german_plural}{dative}"


def _things(rng: Random) -> Pair:
    """One or several things as an accusative object, with or without an adjective."""
    noun = rng.choice(lexicon.THINGS)
    number = 1 if rng.random() < 0.2 else _number(rng)
    if rng.random() < 0.5:
        return _count(rng, noun, number)
    english, german = rng.choice(lexicon.ADJECTIVES)
    ending = lexicon.ADJECTIVE_ENDING_AFTER_EIN[noun.gender] if number == 1 else "e"
    described = noun._replace(
        english=f"{english} {noun.english}",
        german=f"{german}{ending} {noun.german}",
        english_plural=f"{english} {noun.english_plural}",
        german_plural=f"{german}{ending} {noun.german_plural}",
    )
    return _count(rng, described, number)


def _clock(rng: Random) -> Pair:
    """A time of day as timetables give it, or as people say it: half past two is "halb drei"."""
    hour, minute = rng.randrange(24), rng.randrange(60)
    if rng.random() < 0.5:
        german = f"{'ein' if hour == 1 else _german(hour)} Uhr"
        english = format_time(datetime.time(hour, minute), "short", locale="en_US")
        return _plain(english), _join(german, _german(minute) if minute else "")
    earliest, latest, part, teil = rng.choice(
        (
            (6, 10, "in the morning", "morgens"),
            (2, 4, "in the afternoon", "nachmittags"),
            (6, 10, "in the evening", "abends"),
        )
    )
    now = rng.randint(earliest, latest)
    following = now + 1
    english, german = rng.choice(
        (
            (f"{_spell(now, 'en')} o'clock", f"{_german(now)} Uhr"),
            (f"half past {_spell(now, 'en')}", f"halb {_german(following)}"),
            (f"a quarter past {_spell(now, 'en')}", f"Viertel nach {_german(now)}"),
            (f"a quarter to {_spell(following, 'en')}", f"Viertel vor {_german(following)}"),
            (f"ten past {_spell(now, 'en')}", f"zehn nach {_german(now)}"),
            (f"twenty to {_spell(following, 'en')}", f"zwanzig vor {_german(following)}"),
        )
    )
    return f"{english} {part}", f"{german} {teil}"


def _date(rng: Random, pattern: str) -> tuple[str, datetime.date]:
    day = datetime.date(1900, 1, 1) + datetime.timedelta(days=rng.randrange(365 * 125))
    return format_date(day, pattern, locale="en"), day


def _day_and_month(day: datetime.date) -> str:
    return f"{_spell(day.day, 'de', 'ordinal')}n {format_date(day, 'MMMM', locale='de')}"


def _price(rng: Random) -> Pair:
    amount = _number(rng, high=9999) + rng.choice((0, 0.5, 0.95, 0.25, rng.randrange(100) / 100))
    currency = rng.choice(("EUR", "USD", "GBP"))
    return format_currency(amount, currency, locale="en_US"), _plain(format_currency(amount, currency, locale="de"))


def _spelled_price(rng: Random) -> Pair:
    """An amount of money in words, in the accusative."""
    currency, number = rng.choice(("EUR", "USD", "CHF")), _number(rng)
    german = f"{_german(number)} {get_currency_name(currency, count=number, locale='de')}"
    english = f"{_english(rng, number)} {get_currency_name(currency, count=number, locale='en')}"
    if currency == "CHF" or rng.random() < 0.5:
        return english, german
    cents = rng.randrange(5, 100, 5)
    return f"{english} and {_english(rng, cents)} cents", f"{german} und {_german(cents)} Cent"


def _measure(rng: Random, unit: str, high: int = 999) -> Pair:
    """A whole number of a unit of CLDR, such as "length-meter"; the German number is spelled."""
    number = _number(rng, high=high)
    german = format_unit(number, unit, locale="de").replace(format_decimal(number, locale="de"), _german(number))
    english = format_unit(number, unit, locale="en").replace(format_decimal(number, locale="en"), _english(rng, number))
    return english, german


# Clauses: one function a topic


def _departure(rng: Random) -> Clause:
    vehicle, (city, stadt), (time, zeit) = rng.choice(lexicon.VEHICLES), rng.choice(lexicon.CITIES), _clock(rng)
    if rng.random() < 0.5:
        english = f"the {vehicle.english} to {city} leaves at {time}"
        return Clause(english, f"{lexicon.the(vehicle)} nach {stadt}", "fährt", f"um {zeit}", prefix="ab")
    english = f"the {vehicle.english} from {city} arrives at {time}"
    return Clause(english, f"{lexicon.the(vehicle)} aus {stadt}", "kommt", f"um {zeit}", prefix="an")


def _meeting(rng: Random) -> Clause:
    (english, german, reflexive), (time, zeit) = rng.choice(lexicon.REFLEXIVES), _clock(rng)
    (position, stelle), place = rng.choice(lexicon.POSITIONS), rng.choice(lexicon.PLACES)
    middle = f"{reflexive} um {zeit} {stelle} {lexicon.the(place, 'dative')}"
    return Clause(f"{english} meet at {time} {position} the {place.english}", german, "treffen", middle)


def _event(rng: Random) -> Clause:
    event, (english, day) = rng.choice(lexicon.EVENTS), _date(rng, "EEEE, MMMM d")
    middle = f"am {format_date(day, 'EEEE', locale='de')}, dem {_day_and_month(day)},"
    if rng.random() < 0.5:
        time, zeit = _clock(rng)
        english, middle = f"{english}, at {time}", f"{middle} um {zeit}"
    return Clause(f"the {event.english} takes place on {english}", lexicon.the(event), "findet", middle, prefix="statt")


def _birth(rng: Random) -> Clause:
    (person, wer), (english, day) = lexicon.person(rng), _date(rng, "MMMM d, y")
    middle = f"am {_day_and_month(day)} {_spell(day.year, 'de', 'year')}"
    return Clause(f"{person} was born on {english}", wer, "wurde", middle, last="geboren")


def _age(rng: Random) -> Clause:
    (person, wer), (years, jahre) = lexicon.person(rng), _count(rng, lexicon.YEAR, _number(rng, low=1, high=99))
    return Clause(f"{person} is {years} old", wer, "ist", f"{jahre} alt")


def _comparison(rng: Random) -> Clause:
    (person, wer), (other, anderer) = lexicon.person(rng), lexicon.relative(rng)
    years, jahre = _count(rng, rng.choice((lexicon.WEEK, lexicon.MONTH, lexicon.YEAR)), _number(rng, low=1, high=30))
    than, als = rng.choice((("older than", "älter als"), ("younger than", "jünger als")))
    return Clause(f"{person} is {years} {than} {other}", wer, "ist", f"{jahre} {als} {anderer}")


def _purchase(rng: Random) -> Clause:
    (person, wer), (things, dinge), (price, preis) = lexicon.person(rng), _things(rng), _price(rng)
    _, _, past, participle = rng.choice(lexicon.DEALS)
    return Clause(f"{person} {past} {things} for {price}", wer, "hat", f"{dinge} für {preis}", last=participle)


def _plan(rng: Random) -> Clause:
    (person, wer), (things, dinge), (modal, modalverb) = lexicon.person(rng), _things(rng), rng.choice(lexicon.MODALS)
    (infinitive, verb, _, _), (other, wen) = rng.choice(lexicon.DEALS), lexicon.relative(rng, "accusative")
    english = f"{person} {modal} {infinitive} {things} for {other}"
    return Clause(english, wer, modalverb, f"{dinge} für {wen}", last=verb)


def _gift(rng: Random) -> Clause:
    (person, wer), (things, dinge), (other, wem) = lexicon.person(rng), _things(rng), lexicon.relative(rng, "dative")
    return Clause(f"{person} gives {things} to {other}", wer, "gibt", f"{wem} {dinge}")


def _cost(rng: Random) -> Clause:
    noun, (price, preis) = rng.choice(lexicon.THINGS), _spelled_price(rng)
    adjective, adjektiv = rng.choice(lexicon.ADJECTIVES)
    if rng.random() < 0.5:
        subject = f"{lexicon.THE['nominative'][noun.gender]} {adjektiv}e {noun.german}"
        return Clause(f"the {adjective} {noun.english} costs {price}", subject, "kostet", preis)
    subject = f"die {adjektiv}en {noun.german_plural}"
    return Clause(f"the {adjective} {noun.english_plural} cost {price}", subject, "kosten", preis)


def _weight(rng: Random) -> Clause:
    noun, tenths = rng.choice(lexicon.THINGS), _number(rng) / 10
    weight, gewicht = (format_unit(tenths, "mass-kilogram", locale=locale) for locale in ("en", "de"))
    (position, stelle), place = rng.choice(lexicon.POSITIONS), rng.choice(lexicon.PLACES)
    subject = f"{lexicon.the(noun)} {stelle} {lexicon.the(place, 'dative')}"
    return Clause(f"the {noun.english} {position} the {place.english} weighs {weight}", subject, "wiegt", gewicht)


def _length(rng: Random) -> Clause:
    thing, (city, stadt) = rng.choice(lexicon.LONG_THINGS), rng.choice(lexicon.CITIES)
    length, strecke = _measure(rng, rng.choice(("length-meter", "length-kilometer")), high=9999)
    long, lang = rng.choice((("long", "lang"), ("wide", "breit")))
    english = f"the {thing.english} near {city} is {length} {long}"
    return Clause(english, f"{lexicon.the(thing)} bei {stadt}", "ist", f"{strecke} {lang}")


def _distance(rng: Random) -> Clause:
    near, far = rng.sample(lexicon.PLACES, 2)
    length, strecke = _measure(rng, rng.choice(("length-meter", "length-kilometer")))
    start = f"von der {far.german}" if far.gender == "f" else f"vom {far.german}"
    english = f"the {near.english} is {length} from the {far.english}"
    return Clause(english, lexicon.the(near), "liegt", f"{strecke} {start}", last="entfernt")


def _duration(rng: Random) -> Clause:
    (start, anfang), (end, ende) = rng.sample(lexicon.CITIES, 2)
    hours, stunden = _count(rng, lexicon.HOUR, _number(rng, low=1, high=48))
    minutes, minuten = _count(rng, lexicon.MINUTE, _number(rng, low=1, high=59))
    english = f"the journey from {start} to {end} takes {hours} and {minutes}"
    return Clause(english, f"die Reise von {anfang} nach {ende}", "dauert", f"{stunden} und {minuten}")


def _opening(rng: Random) -> Clause:
    place, (city, stadt) = rng.choice(lexicon.PLACES), rng.choice(lexicon.CITIES)
    span, frist = _count(rng, rng.choice(lexicon.TIME_SPANS), _number(rng, low=1, high=99), "dative")
    opens, verb = rng.choice((("opens", "öffnet"), ("closes", "schließt")))
    english = f"the {place.english} in {city} {opens} in {span}"
    return Clause(english, f"{lexicon.the(place)} in {stadt}", verb, f"in {frist}")


def _share(rng: Random) -> Clause:
    number, (group, gruppe) = _number(rng, high=99), rng.choice(lexicon.GROUPS)
    (habit, verb, was), (when, wann) = rng.choice(lexicon.HABITS), rng.choice(lexicon.REPEATED)
    percent = format_percent(number / 100, locale="en") if rng.random() < 0.5 else f"{_spell(number, 'en')} percent"
    english = f"{percent} of the {group} {habit} {when}"
    return Clause(english, f"{_german(number)} Prozent der {gruppe}", verb, f"{wann} {was}")


def _telephone(rng: Random) -> Clause:
    digits, (person, wem) = [rng.randrange(10) for _ in range(rng.randint(3, 6))], lexicon.relative(rng, "dative")
    english = f"the phone number of {person} is {''.join(map(str, digits))}"
    return Clause(english, f"die Telefonnummer von {wem}", "lautet", " ".join(map(_german, digits)))


def _recipe(rng: Random) -> Clause:
    (person, wer), (food, speise) = lexicon.person(rng), rng.choice(lexicon.INGREDIENTS)
    amount, menge = _measure(rng, rng.choice(("mass-gram", "mass-kilogram")))
    things, dinge = _things(rng)
    return Clause(f"{person} needs {amount} of {food} and {things}", wer, "braucht", f"{menge} {speise} und {dinge}")


def _address(rng: Random) -> Clause:
    (person, wer), place, number = lexicon.person(rng), rng.choice(lexicon.PLACES), rng.randint(1, 99)
    ordinal = _spell(number, "en", rng.choice(("ordinal", "ordinal_num")))
    position, stelle = rng.choice(lexicon.POSITIONS)
    middle = f"im {_spell(number, 'de', 'ordinal')}n Haus {stelle} {lexicon.the(place, 'dative')}"
    return Clause(f"{person} lives in the {ordinal} house {position} the {place.english}", wer, "wohnt", middle)


def _temperature(rng: Random) -> Clause:
    (city, stadt), (degrees, grad) = rng.choice(lexicon.CITIES), _measure(rng, "temperature-celsius", high=39)
    (time, zeit), sign = _clock(rng), rng.choice(("", "minus "))
    english = f"the temperature in {city} at {time} is {sign}{degrees}"
    return Clause(english, f"die Temperatur in {stadt}", "beträgt", f"um {zeit} {sign}{grad}")


TOPICS: tuple[Callable[[Random], Clause], ...] = (
    _departure,
    _meeting,
    _event,
    _birth,
    _age,
    _comparison,
    _purchase,
    _plan,
    _gift,
    _cost,
    _weight,
    _length,
    _distance,
    _duration,
    _opening,
    _share,
    _telephone,
    _recipe,
    _address,
    _temperature,
)


def _sentence(rng: Random) -> Pair:
    clause, order = rng.choice(TOPICS)(rng), rng.random()
    if order < 0.4:
        english, german = f"{clause.english}.", f"{clause.main()}."
    elif order < 0.55:
        frame, rahmen = rng.choice(lexicon.ADVERB_FRAMES)
        english, german = frame.format(clause.english), rahmen.format(clause.inverted())
    else:
        frame, rahmen = rng.choice(lexicon.SUBORDINATE_FRAMES)
        english, german = frame.format(clause.english), rahmen.format(clause.subordinate())
    return english[0].upper() + english[1:], german[0].upper() + german[1:]


def _distinct_pairs(rng: Random) -> Iterator[Pair]:
    """Sentences without end, no English and no German one of them twice."""
    seen: set[str] = set()
    repeats = 0
    while repeats < PATIENCE:
        english, german = _sentence(rng)
        if english in seen or german in seen:
            repeats += 1
            continue
        seen.update((english, german))
        repeats = 0
        yield english, german
    raise ValueError(f"The grammar has no more than about {len(seen) // 2} distinct pairs: ask for fewer.")


def phrasebook(size: int = 40_000, valid: int = 500, test: int = 500, seed: int = 0) -> Splits:
    """Makes the corpus: {"train": pairs, "valid": pairs, "test": pairs} of (English, German) sentences.

    No sentence of either language occurs twice in all splits together. The same arguments give the same pairs in every
    process; test and validation pairs depend on the seed and their own sizes, not on the size of the training split.

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
