"""Numbers, counted things, prices, measures, times and dates, each in English and German.

Small and round numbers come more often than others, and so do times at a multiple of five minutes, as in speech.
"""

import datetime
from functools import cache
from random import Random

from babel.dates import format_date, format_time
from babel.numbers import format_currency, format_decimal
from babel.units import format_unit
from num2words import num2words

from . import lexicon
from .lexicon import Noun, Pair

WHOLE = {"en_US": "¤#,##0", "de": "#,##0 ¤"}  # CLDR's formats of money, without decimals


def join(*parts: str) -> str:
    """The words of a sentence, without the parts that are empty."""
    return " ".join(part for part in parts if part)


@cache
def spell(number: int, language: str, form: str = "cardinal") -> str:
    """A number in words."""
    return num2words(number, lang=language, to=form)


@cache
def decimal(number: int, language: str) -> str:
    """A number in digits."""
    return format_decimal(number, locale=language)


@cache
def of_unit(number: int, unit: str, language: str) -> str:
    """A number in digits with a unit of CLDR, such as "length-meter"."""
    return format_unit(number, unit, locale=language)


@cache
def month(number: int, language: str) -> str:
    """The name of a month, from 1."""
    return format_date(datetime.date(2024, number, 1), "MMMM", locale=language)


@cache
def day_of_week(number: int, language: str) -> str:
    """The name of a weekday, 0 for Monday."""
    return format_date(datetime.date(2024, 1, 1 + number), "EEEE", locale=language)


def plain(text: str) -> str:
    """CLDR separates with no-break spaces; a corpus to be typed has plain ones."""
    return text.replace("\u202f", " ").replace("\xa0", " ")


def some_number(rng: Random, low: int = 2, high: int = 999) -> int:
    """A number, half of them up to twelve, and none like 101, whose form before a German noun is disputed."""
    kind = rng.random()
    if kind < 0.5:
        number = rng.randint(low, min(12, high))
    elif kind < 0.65:
        number = 10 * rng.randint(1, 10) if high < 200 or rng.random() < 0.6 else 100 * rng.randint(1, high // 100)
    elif kind < 0.9:
        number = rng.randint(low, min(99, high))
    else:
        number = rng.randint(low, high)
    number = min(number, high)
    return number + 1 if number % 100 == 1 and number > 1 else number


def english(rng: Random, number: int) -> str:
    """A number in words or digits."""
    return spell(number, "en") if number < 1000 and rng.random() < 0.5 else decimal(number, "en")


def german(number: int) -> str:
    """A number in words."""
    return spell(number, "de")


def count(rng: Random, noun: Noun, number: int, case: str = "accusative") -> Pair:
    """A number of things, in the accusative or, for time spans, in the dative."""
    if number == 1:
        return f"one {noun.english}", f"ein{lexicon.EIN_ENDING[case][noun.gender]} {noun.german}"
    dative = "" if case != "dative" or noun.german_plural.endswith("n") else "n"
    return f"{english(rng, number)} {noun.english_plural}", f"{german(number)} {noun.german_plural}{dative}"


def described(rng: Random, noun: Noun, number: int) -> Noun:
    """The noun with an adjective, as it is in the accusative after this number."""
    adjective, adjektiv = rng.choice(lexicon.ADJECTIVES)
    ending = lexicon.ADJECTIVE_ENDING_AFTER_EIN[noun.gender] if number == 1 else "e"
    return noun._replace(
        english=f"{adjective} {noun.english}",
        german=f"{adjektiv}{ending} {noun.german}",
        english_plural=f"{adjective} {noun.english_plural}",
        german_plural=f"{adjektiv}{ending} {noun.german_plural}",
    )


def things(rng: Random) -> Pair:
    """One or several things as an accusative object, some with an adjective."""
    noun = rng.choice((*lexicon.THINGS, *lexicon.FRUIT))
    number = 1 if rng.random() < 0.25 else some_number(rng)
    if rng.random() < 0.3:
        noun = described(rng, noun, number)
    thing, ding = count(rng, noun, number)
    return (lexicon.a(noun), ding) if number == 1 and rng.random() < 0.6 else (thing, ding)


def groceries(rng: Random) -> Pair:
    """An amount of something to eat or drink, as an accusative object."""
    kind = rng.random()
    if kind < 0.4:
        (vessel, gefäß), drink = portions(rng, rng.choice(lexicon.VESSELS)), rng.choice(lexicon.DRINKS)
        return f"{vessel} of {drink.english}", f"{gefäß} {drink.german}"
    if kind < 0.6:
        return portions(rng, rng.choice(lexicon.DISHES))
    amount, menge = measure(rng, rng.choice(("mass-gram", "mass-kilogram")))
    food = rng.choice((*lexicon.INGREDIENTS, *lexicon.FRUIT))
    return f"{amount} of {food.english_plural or food.english}", f"{menge} {food.german_plural or food.german}"


def portions(rng: Random, noun: Noun) -> Pair:
    """A few of a kind, as at a table."""
    if rng.random() < 0.3:
        return lexicon.a(noun), count(rng, noun, 1)[1]
    return count(rng, noun, some_number(rng, low=1, high=20))


def clock(rng: Random) -> Pair:
    """A time of day as timetables give it, or as people say it: half past two is "halb drei"."""
    kind = rng.random()
    if kind < 0.55:
        return spoken_clock(rng)
    hour, minute = rng.randrange(24), 5 * rng.randrange(12) if rng.random() < 0.7 else rng.randrange(60)
    zeit = join(f"{'ein' if hour == 1 else german(hour)} Uhr", german(minute) if minute else "")
    if kind < 0.75:
        return f"{hour}:{minute:02}", zeit
    if minute == 0:
        return f"{hour % 12 or 12} {'AM' if hour < 12 else 'PM'}", zeit
    return plain(format_time(datetime.time(hour, minute), "short", locale="en_US")), zeit


def spoken_clock(rng: Random) -> Pair:
    """A time of day as people say it, with or without the part of the day."""
    earliest, latest, part, teil = rng.choice(
        (
            (1, 12, "", ""),
            (1, 12, "", ""),
            (6, 10, "in the morning", "morgens"),
            (2, 4, "in the afternoon", "nachmittags"),
            (6, 10, "in the evening", "abends"),
        )
    )
    hour = rng.randint(earliest, latest)
    past, nach = spell(hour, "en"), german(hour)
    to, vor = spell(hour % 12 + 1, "en"), german(hour % 12 + 1)
    time, zeit = rng.choice(
        (
            (f"{past} o'clock", f"{'ein' if hour == 1 else nach} Uhr"),
            (past, nach),
            (f"half past {past}", f"halb {vor}"),
            (f"a quarter past {past}", f"Viertel nach {nach}"),
            (f"a quarter to {to}", f"Viertel vor {vor}"),
            (f"ten past {past}", f"zehn nach {nach}"),
            (f"twenty to {to}", f"zwanzig vor {vor}"),
        )
    )
    return join(time, part), join(zeit, teil)


def some_day(rng: Random) -> datetime.date:
    """A day of the last hundred years or so."""
    return datetime.date(1900, 1, 1) + datetime.timedelta(days=rng.randrange(365 * 125))


def english_date(rng: Random, day: datetime.date) -> str:
    """Month and day: May 3, or the third of May."""
    if rng.random() < 0.2:
        return f"the {spell(day.day, 'en', 'ordinal')} of {month(day.month, 'en')}"
    return f"{month(day.month, 'en')} {day.day}"


def german_date(day: datetime.date, ending: str = "n") -> str:
    """Day and month, in the dative or, without its ending, in the nominative: dritte Mai."""
    return f"{spell(day.day, 'de', 'ordinal')}{ending} {month(day.month, 'de')}"


def weekday(day: datetime.date) -> Pair:
    """The day of the week."""
    return day_of_week(day.weekday(), "en"), day_of_week(day.weekday(), "de")


def price(rng: Random) -> Pair:
    """An amount of money in digits, with or without decimals."""
    currency = rng.choice(("EUR", "USD", "GBP"))
    number = some_number(rng)
    if rng.random() < 0.4:
        texts = (format_currency(number, currency, WHOLE[name], name, currency_digits=False) for name in WHOLE)
    else:
        amount = number + rng.choice((0.5, 0.95, 0.25, 0.99, rng.randrange(100) / 100))
        texts = (format_currency(amount, currency, locale=name) for name in WHOLE)
    written, geschrieben = map(plain, texts)
    return written, geschrieben


def spelled_price(rng: Random) -> Pair:
    """An amount of money in words, in the accusative."""
    noun = rng.choice(lexicon.MONEY)
    if rng.random() < 0.1:
        number = 1000 * rng.randint(1, 12)
        digits = rng.choice((str(number), decimal(number, "en")))
        return f"{digits} {noun.english_plural}", f"{german(number)} {noun.german_plural}"
    amount, betrag = count(rng, noun, some_number(rng, low=1))
    if noun.english[-4:] not in ("euro", "llar") or rng.random() < 0.75:
        return amount, betrag
    cents = rng.randrange(5, 100, 5)
    return f"{amount} and {english(rng, cents)} cents", f"{betrag} und {german(cents)} Cent"


def any_price(rng: Random) -> Pair:
    """An amount of money in words or digits."""
    return spelled_price(rng) if rng.random() < 0.65 else price(rng)


def measure(rng: Random, unit: str, high: int = 999) -> Pair:
    """A whole number of a unit of CLDR, such as "length-meter"; the German number is spelled."""
    number = some_number(rng, high=high)
    amount = of_unit(number, unit, "en").replace(decimal(number, "en"), english(rng, number))
    menge = of_unit(number, unit, "de").replace(decimal(number, "de"), german(number))
    return amount, menge
