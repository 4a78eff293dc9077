"""Questions of the phrasebook that begin with how much, how old, when, where: each with its German."""

from collections.abc import Callable
from random import Random

from . import amounts, lexicon
from .amounts import join
from .clauses import perhaps, person
from .lexicon import Pair


def how_much(rng: Random) -> Pair:
    noun = rng.choice((*lexicon.THINGS, *lexicon.FRUIT, *lexicon.DISHES))
    if rng.random() < 0.5:
        return f"how much does the {noun.english} cost?", f"wie viel kostet {lexicon.the(noun)}?"
    if rng.random() < 0.4:
        return f"how much do the {noun.english_plural} cost?", f"wie viel kosten die {noun.german_plural}?"
    things, dinge = amounts.count(rng, noun, amounts.some_number(rng, high=20))
    return f"how much do {things} cost?", f"wie viel kosten {dinge}?"


def how_many(rng: Random) -> Pair:
    subject, verb = person(rng), rng.choice((lexicon.HAVE, lexicon.NEED, lexicon.BUY))
    noun = rng.choice((*lexicon.THINGS, *lexicon.FRUIT, *(lexicon.FAMILY if verb == lexicon.HAVE else ())))
    english = f"{'does' if subject.form == 2 else 'do'} {subject.english} {verb.english[0]}"
    german = f"{verb.german[subject.form]} {subject.german}"
    return f"how many {noun.english_plural} {english}?", f"wie viele {noun.german_plural} {german}?"


def how_old(rng: Random) -> Pair:
    subject = person(rng)
    be, sein = lexicon.BE.english[subject.form], lexicon.BE.german[subject.form]
    return f"how old {be} {subject.english}?", f"wie alt {sein} {subject.german}?"


def how_far(rng: Random) -> Pair:
    near, far = rng.sample(lexicon.PLACES, 2)
    start = f"von der {near.german}" if near.gender == "f" else f"vom {near.german}"
    end = f"zur {far.german}" if far.gender == "f" else f"zum {far.german}"
    return f"how far is it from the {near.english} to the {far.english}?", f"wie weit ist es {start} {end}?"


def how_long(rng: Random) -> Pair:
    (start, anfang), (end, ende) = rng.sample(lexicon.CITIES, 2)
    noun = rng.choice((*lexicon.JOURNEYS, *lexicon.EVENTS))
    route, strecke = "", ""
    if noun in lexicon.JOURNEYS:
        route, strecke = f"from {start} to {end}", f"von {anfang} nach {ende}"
    return join("how long does the", noun.english, route, "take?"), join(
        "wie lange dauert", lexicon.the(noun), strecke
    ) + "?"


def what_time(rng: Random) -> Pair:
    city, stadt = rng.choice(lexicon.CITIES)
    where, wo = perhaps(rng, f"in {city}", f"in {stadt}")
    return join("what time is it", where) + "?", join("wie spät ist es", wo) + "?"


def when(rng: Random) -> Pair:
    kind, (city, stadt) = rng.random(), rng.choice(lexicon.CITIES)
    if kind < 0.25:
        vehicle = rng.choice(lexicon.VEHICLES)
        to, nach = perhaps(rng, f"to {city}", f"nach {stadt}")
        return join("when does the", vehicle.english, to, "leave?"), join(
            "wann fährt", lexicon.the(vehicle), nach, "ab?"
        )
    if kind < 0.5:
        vehicle = rng.choice(lexicon.VEHICLES)
        source, aus = perhaps(rng, f"from {city}", f"aus {stadt}")
        german = join("wann kommt", lexicon.the(vehicle), aus, "an?")
        return join("when does the", vehicle.english, source, "arrive?"), german
    verb = rng.choice((lexicon.OPEN, lexicon.CLOSE) if kind < 0.75 else (lexicon.BEGIN, lexicon.START, lexicon.END))
    noun = rng.choice(lexicon.PLACES if kind < 0.75 else lexicon.EVENTS)
    return f"when does the {noun.english} {verb.english[0]}?", f"wann {verb.german[2]} {lexicon.the(noun)}?"


def where(rng: Random) -> Pair:
    if rng.random() < 0.6:
        place = rng.choice(lexicon.PLACES)
        return f"where is the {place.english}?", f"wo ist {lexicon.the(place)}?"
    thing, ding = lexicon.owned(rng, rng.choice(lexicon.THINGS))
    return f"where is {thing}?", f"wo ist {ding}?"


QUESTIONS: tuple[Callable[[Random], Pair], ...] = (
    how_much, how_many, how_old, how_far, how_long, what_time, when, where
)  # fmt: skip
