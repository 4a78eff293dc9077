"""Statements of the phrasebook: one function a topic, each gives a clause in English and the parts of its German."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from babel.numbers import format_percent
from babel.units import format_unit

from . import amounts, lexicon
from .amounts import join
from .lexicon import Noun, Pair, Subject, Verb


class Clause(NamedTuple):
    """A statement: its English, and its German in the parts that word order moves.

    `last` is the participle or infinitive that closes the clause, `prefix` the separable prefix of the finite verb,
    `question` the English of the same as a question where there is one.
    """

    english: str
    subject: str
    verb: str
    middle: str
    last: str = ""
    prefix: str = ""
    question: str = ""

    def main(self) -> str:
        return join(self.subject, self.verb, self.middle, self.last, self.prefix).removesuffix(",")

    def inverted(self) -> str:
        return join(self.verb, self.subject, self.middle, self.last, self.prefix).removesuffix(",")

    def subordinate(self) -> str:
        return join(self.subject, self.middle, self.last, self.prefix + self.verb)


def say(subject: Subject, verb: Verb, english: str, middle: str, last: str = "", prefix: str = "") -> Clause:
    """What the subject does, with the question whether it does so."""
    finite, infinitive = verb.english[subject.form], verb.english[0]
    first, _, rest = finite.partition(" ")
    if first in ("am", "are", "is", "was", "were", "can", "should", "will", "would"):
        question = join(first, subject.english, rest, english)
    else:
        question = join("does" if subject.form == 2 else "do", subject.english, infinitive, english)
    statement = join(subject.english, finite, english)
    return Clause(statement, subject.german, verb.german[subject.form], middle, last, prefix, question)


def person(rng: Random) -> Subject:
    """A person or several as subject: a pronoun, a name, a relative, or two children."""
    kind = rng.random()
    if kind < 0.4:
        english, german, form = rng.choice(lexicon.PRONOUNS)
        return Subject(english, german, int(form))
    if kind < 0.52:
        name = rng.choice(lexicon.NAMES)
        return Subject(name, name, 2)
    if kind < 0.9:
        return Subject(*lexicon.relative(rng), 2)
    number, (people, leute) = amounts.some_number(rng, high=99), rng.choice(lexicon.GROUPS)
    return Subject(f"{amounts.english(rng, number)} {people}", f"{amounts.german(number)} {leute}", 3)


def perhaps(rng: Random, english: str, german: str) -> Pair:
    """A part of a clause that is left out half of the time."""
    return (english, german) if rng.random() < 0.5 else ("", "")


# When


def time_now(rng: Random) -> Clause:
    return say(Subject("it", "es", 2), lexicon.BE, *amounts.clock(rng))


def departure(rng: Random) -> Clause:
    vehicle, (city, stadt), (when, wann) = rng.choice(lexicon.VEHICLES), rng.choice(lexicon.CITIES), moment(rng)
    leaves = rng.random() < 0.5
    (route, strecke) = perhaps(rng, f"{'to' if leaves else 'from'} {city}", f"{'nach' if leaves else 'aus'} {stadt}")
    subject = Subject(join(f"the {vehicle.english}", route), join(lexicon.the(vehicle), strecke), 2)
    if leaves:
        return say(subject, lexicon.LEAVE, when, wann, prefix="ab")
    return say(subject, lexicon.ARRIVE, when, wann, prefix="an")


def moment(rng: Random) -> Pair:
    """At a time, on a day, or in some minutes."""
    kind = rng.random()
    if kind < 0.6:
        time, zeit = amounts.clock(rng)
        return f"at {time}", f"um {zeit}"
    if kind < 0.72:
        return day(rng)
    if kind < 0.85:
        on, am = rng.choice((("today", "heute"), ("tomorrow", "morgen"), _every(rng)))
        time, zeit = amounts.clock(rng)
        at, um = perhaps(rng, f"at {time}", f"um {zeit}")
        return join(on, at), join(am, um)
    unit = rng.choice(lexicon.TIME_SPANS[:3])
    span, frist = amounts.count(rng, unit, amounts.some_number(rng, low=1, high=60), "dative")
    return f"in {span}", f"in {frist}"


def _every(rng: Random) -> Pair:
    weekday, wochentag = amounts.weekday(amounts.some_day(rng))
    return f"every {weekday}", f"jeden {wochentag}"


def day(rng: Random) -> Pair:
    """On a weekday, on a date, or on both; some with a time."""
    some_day = amounts.some_day(rng)
    (weekday, wochentag) = amounts.weekday(some_day)
    date, tag = amounts.english_date(rng, some_day), amounts.german_date(some_day)
    when, wann = rng.choice(
        (
            (f"on {weekday}", f"am {wochentag}"),
            (f"on {date}", f"am {tag}"),
            (f"on {weekday}, {date}", f"am {wochentag}, dem {tag},"),
        )
    )
    if rng.random() < 0.6:
        return when, wann
    time, zeit = amounts.clock(rng)
    return f"{when}{',' if ',' in when else ''} at {time}", f"{wann} um {zeit}"


def event(rng: Random) -> Clause:
    subject, (when, wann) = lexicon.one(rng.choice(lexicon.EVENTS)), day(rng)
    if rng.random() < 0.5:
        return say(subject, lexicon.TAKE_PLACE, f"place {when}", wann, prefix="statt")
    return say(subject, lexicon.BE, when, wann)


def beginning(rng: Random) -> Clause:
    subject, verb = lexicon.one(rng.choice(lexicon.EVENTS)), rng.choice((lexicon.BEGIN, lexicon.START, lexicon.END))
    return say(subject, verb, *moment(rng))


def today(rng: Random) -> Clause:
    some_day = amounts.some_day(rng)
    (weekday, wochentag) = amounts.weekday(some_day)
    date, tag = amounts.english_date(rng, some_day), f"der {amounts.german_date(some_day, '')}"
    what, was = rng.choice(
        ((weekday, wochentag), (date, tag), (date, tag), (f"{weekday}, {date}", f"{wochentag}, {tag}"))
    )
    subject = rng.choice((Subject("today", "heute", 2), Subject("tomorrow", "morgen", 2)))
    return say(subject, lexicon.BE, what, was)


def birthday(rng: Random) -> Clause:
    some_day = amounts.some_day(rng)
    date, tag = amounts.english_date(rng, some_day), amounts.german_date(some_day)
    if rng.random() < 0.5:
        owner, stem = rng.choice(lexicon.POSSESSIVES)
        subject = Subject(f"{owner} birthday", f"{stem} Geburtstag", 2)
    else:
        other, anderer = lexicon.relative(rng, "dative")
        subject = Subject(f"the birthday of {other}", f"der Geburtstag von {anderer}", 2)
    return say(subject, lexicon.BE, f"on {date}", f"am {tag}")


def birth(rng: Random) -> Clause:
    some_day, subject = amounts.some_day(rng), person(rng)
    date, tag = amounts.english_date(rng, some_day), amounts.german_date(some_day)
    year = amounts.spell(some_day.year, "de", "year")
    kind = rng.random()
    if kind < 0.25:
        return say(subject, lexicon.WAS, f"born in {some_day.year}", year, last="geboren")
    if kind < 0.4:
        return say(subject, lexicon.WAS, f"born on {date}", f"am {tag}", last="geboren")
    return say(subject, lexicon.WAS, f"born on {date}, {some_day.year}", f"am {tag} {year}", last="geboren")


def meeting(rng: Random) -> Clause:
    (english, german, reflexive), (when, wann) = rng.choice(lexicon.REFLEXIVES), moment(rng)
    (position, stelle), place = rng.choice(lexicon.POSITIONS), rng.choice(lexicon.PLACES)
    (where, wo) = perhaps(rng, f"{position} the {place.english}", f"{stelle} {lexicon.the(place, 'dative')}")
    return say(Subject(english, german, 3), lexicon.MEET, join(when, where), join(reflexive, wann, wo))


def opening(rng: Random) -> Clause:
    place, (city, stadt), (when, wann) = rng.choice(lexicon.PLACES), rng.choice(lexicon.CITIES), moment(rng)
    (where, wo) = perhaps(rng, f"in {city}", f"in {stadt}")
    subject = Subject(join(f"the {place.english}", where), join(lexicon.the(place), wo), 2)
    return say(subject, rng.choice((lexicon.OPEN, lexicon.CLOSE)), when, wann)


def opening_hours(rng: Random) -> Clause:
    place, (start, anfang), (end, ende) = rng.choice(lexicon.PLACES), amounts.clock(rng), amounts.clock(rng)
    english, german = f"open from {start} to {end}", f"von {anfang} bis {ende}"
    return say(lexicon.one(place), lexicon.BE, english, german, last="geöffnet")


def arrival(rng: Random) -> Clause:
    subject, (when, wann) = person(rng), moment(rng)
    if rng.random() < 0.6:
        return say(subject, lexicon.ARRIVE, when, wann, prefix="an")
    return say(subject, rng.choice(lexicon.MODALS), f"arrive {when}", wann, last="ankommen")


# How long


def age(rng: Random) -> Clause:
    subject, number = person(rng), amounts.some_number(rng, low=1, high=99)
    years, jahre = amounts.count(rng, lexicon.YEAR, number)
    return say(subject, lexicon.BE, f"{years} old", f"{jahre} alt")


def comparison(rng: Random) -> Clause:
    subject, (other, anderer) = person(rng), lexicon.relative(rng)
    unit = rng.choice((lexicon.WEEK, lexicon.MONTH, lexicon.YEAR))
    years, jahre = amounts.count(rng, unit, amounts.some_number(rng, low=1, high=30))
    than, als = rng.choice((("older than", "älter als"), ("younger than", "jünger als")))
    return say(subject, lexicon.BE, f"{years} {than} {other}", f"{jahre} {als} {anderer}")


def duration(rng: Random) -> Clause:
    hours, stunden = time_span(rng)
    if rng.random() < 0.5:
        return say(lexicon.one(rng.choice((*lexicon.EVENTS, *lexicon.JOURNEYS))), lexicon.LAST, hours, stunden)
    (start, anfang), (end, ende) = rng.sample(lexicon.CITIES, 2)
    journey = rng.choice(lexicon.JOURNEYS)
    english = f"the {journey.english} from {start} to {end}"
    return say(Subject(english, f"{lexicon.the(journey)} von {anfang} nach {ende}", 2), lexicon.LAST, hours, stunden)


def time_span(rng: Random) -> Pair:
    """Some minutes, hours, days or weeks, or hours and minutes."""
    if rng.random() < 0.7:
        unit = rng.choice((lexicon.MINUTE, lexicon.HOUR, lexicon.HOUR, lexicon.DAY, lexicon.WEEK))
        return amounts.count(rng, unit, amounts.some_number(rng, low=1, high=90))
    hours, stunden = amounts.count(rng, lexicon.HOUR, amounts.some_number(rng, low=1, high=48))
    minutes, minuten = amounts.count(rng, lexicon.MINUTE, amounts.some_number(rng, low=1, high=59))
    return f"{hours} and {minutes}", f"{stunden} und {minuten}"


def activity(rng: Random) -> Clause:
    verb, (often, before, after) = rng.choice(lexicon.ACTIVITIES), rng.choice(lexicon.FREQUENCIES)
    hours, stunden = amounts.count(rng, lexicon.HOUR, amounts.some_number(rng, low=1, high=24))
    return say(person(rng), verb, join(hours, often), join(before, stunden, after))


# How much


def possession(rng: Random) -> Clause:
    verb = rng.choice((lexicon.HAVE, lexicon.NEED, lexicon.BUY, lexicon.LIKE))
    money = verb != lexicon.BUY and rng.random() < 0.2
    return say(person(rng), verb, *(amounts.spelled_price(rng) if money else goods(rng)))


def goods(rng: Random) -> Pair:
    """Things or groceries, as an accusative object."""
    return amounts.things(rng) if rng.random() < 0.5 else amounts.groceries(rng)


def family(rng: Random) -> Clause:
    some, other = rng.sample(lexicon.FAMILY, 2)
    relatives, verwandte = amounts.count(rng, some, amounts.some_number(rng, low=1, high=12))
    if rng.random() < 0.5:
        others, andere = amounts.count(rng, other, amounts.some_number(rng, low=1, high=12))
        relatives, verwandte = f"{relatives} and {others}", f"{verwandte} und {andere}"
    return say(person(rng), lexicon.HAVE, relatives, verwandte)


def fittings(rng: Random) -> Clause:
    building, thing = rng.choice(lexicon.BUILDINGS), rng.choice(lexicon.FITTINGS)
    subject = Subject(*lexicon.owned(rng, building), 2) if rng.random() < 0.6 else lexicon.one(building)
    return say(subject, lexicon.HAVE, *amounts.count(rng, thing, amounts.some_number(rng, low=1, high=99)))


def presence(rng: Random) -> Clause:
    number, place = amounts.some_number(rng), rng.choice(lexicon.INDOORS)
    if rng.random() < 0.5:
        people, leute = rng.choice(lexicon.GROUPS)
        what, was = f"{amounts.english(rng, number)} {people}", f"{amounts.german(number)} {leute}"
    else:
        what, was = amounts.count(rng, rng.choice(lexicon.THINGS), number)
    what, was = f"{what} in the {place.english}", f"{was} {lexicon.inside(place)}"
    return say(Subject("there", "es", 3), lexicon.THERE_ARE, what, was)


def deal(rng: Random) -> tuple[Pair, Pair, Pair]:
    """What is done, as infinitives and as English past with German participle, and to what."""
    infinitive, verb, past, participle = rng.choice(lexicon.DEALS)
    object_ = goods(rng) if infinitive in ("buy", "sell", "order") else amounts.things(rng)
    return (infinitive, verb), (past, participle), object_


def purchase(rng: Random) -> Clause:
    subject, (_, (past, participle), (what, was)) = person(rng), deal(rng)
    if rng.random() < 0.6:
        price, preis = amounts.any_price(rng)
        what, was = f"{what} for {price}", f"{was} für {preis}"
    have = lexicon.HAVE.german[subject.form]
    return Clause(f"{subject.english} {past} {what}", subject.german, have, was, last=participle)


def plan(rng: Random) -> Clause:
    subject, modal, ((infinitive, verb), _, (what, was)) = person(rng), rng.choice(lexicon.MODALS), deal(rng)
    other, wen = lexicon.relative(rng, "accusative")
    whom, für = perhaps(rng, f"for {other}", f"für {wen}")
    return say(subject, modal, join(infinitive, what, whom), join(was, für), last=verb)


def gift(rng: Random) -> Clause:
    subject, (what, was) = (
        person(rng),
        amounts.things(rng) if rng.random() < 0.6 else amounts.spelled_price(rng),
    )
    if rng.random() < 0.5:
        me, mir = rng.choice(lexicon.DATIVES)
        return say(subject, lexicon.GIVE, f"{me} {what}", f"{mir} {was}")
    other, wem = lexicon.relative(rng, "dative")
    return say(subject, lexicon.GIVE, f"{what} to {other}", f"{wem} {was}")


def needs(rng: Random) -> Clause:
    (what, was), (more, mehr) = amounts.groceries(rng), amounts.things(rng)
    return say(person(rng), lexicon.NEED, f"{what} and {more}", f"{was} und {mehr}")


def cost(rng: Random) -> Clause:
    """What one or several things cost, the red hat, two books, a coffee or it."""
    noun, kind = rng.choice((*lexicon.THINGS, *lexicon.FRUIT, *lexicon.DISHES)), rng.random()
    if kind < 0.08:
        subject = Subject("it", "es", 2)
    elif kind < 0.3:
        subject = lexicon.one(noun)
    elif kind < 0.4:
        subject = Subject(f"the {noun.english_plural}", f"die {noun.german_plural}", 3)
    elif kind < 0.5:
        subject = Subject(rng.choice((lexicon.a(noun), f"one {noun.english}")), lexicon.ein(noun), 2)
    elif kind < 0.8:
        subject = Subject(*amounts.count(rng, noun, amounts.some_number(rng, high=99)), 3)
    else:
        subject = _described(rng, rng.choice(lexicon.THINGS))
    return say(subject, lexicon.COST, *amounts.any_price(rng))


def _described(rng: Random, noun: Noun) -> Subject:
    adjective, adjektiv = rng.choice(lexicon.ADJECTIVES)
    if rng.random() < 0.5:
        german = f"{lexicon.THE['nominative'][noun.gender]} {adjektiv}e {noun.german}"
        return Subject(f"the {adjective} {noun.english}", german, 2)
    return Subject(f"the {adjective} {noun.english_plural}", f"die {adjektiv}en {noun.german_plural}", 3)


def payment(rng: Random) -> Clause:
    noun, subject, (price, preis) = rng.choice(lexicon.THINGS), person(rng), amounts.any_price(rng)
    german = f"{preis} für {lexicon.the(noun, 'accusative')}"
    have = lexicon.HAVE.german[subject.form]
    return Clause(
        f"{subject.english} paid {price} for the {noun.english}", subject.german, have, german, last="bezahlt"
    )


def weight(rng: Random) -> Clause:
    noun = rng.choice(lexicon.THINGS)
    if rng.random() < 0.6:
        weight, gewicht = amounts.measure(rng, rng.choice(("mass-gram", "mass-kilogram")))
    else:
        tenths = rng.randrange(10) + rng.randint(1, 9) / 10
        weight, gewicht = (format_unit(tenths, "mass-kilogram", locale=locale) for locale in ("en", "de"))
    if rng.random() < 0.3:
        return say(person(rng), lexicon.WEIGH, weight, gewicht)
    (where, wo) = perhaps(rng, *place_of(rng))
    subject = Subject(join(f"the {noun.english}", where), join(lexicon.the(noun), wo), 2)
    return say(subject, lexicon.WEIGH, weight, gewicht)


def place_of(rng: Random) -> Pair:
    """Where something is, behind the station."""
    (position, stelle), place = rng.choice(lexicon.POSITIONS), rng.choice(lexicon.PLACES)
    return f"{position} the {place.english}", f"{stelle} {lexicon.the(place, 'dative')}"


def location(rng: Random) -> Clause:
    noun = rng.choice((*lexicon.THINGS, *lexicon.PLACES))
    where, wo = place_of(rng)
    subject = (
        Subject(*lexicon.owned(rng, noun), 2) if noun in lexicon.THINGS and rng.random() < 0.4 else lexicon.one(noun)
    )
    return say(subject, lexicon.BE, where, wo)


def length(rng: Random) -> Clause:
    size, größe = amounts.measure(rng, rng.choice(("length-meter", "length-kilometer")))
    long, lang = rng.choice((("long", "lang"), ("wide", "breit")))
    if rng.random() < 0.4:
        size, größe = amounts.measure(rng, rng.choice(("length-meter", "length-centimeter")))
        subject = lexicon.one(rng.choice(lexicon.THINGS))
    else:
        thing, (city, stadt) = rng.choice(lexicon.LONG_THINGS), rng.choice(lexicon.CITIES)
        (where, wo) = perhaps(rng, f"near {city}", f"bei {stadt}")
        subject = Subject(join(f"the {thing.english}", where), join(lexicon.the(thing), wo), 2)
    return say(subject, lexicon.BE, f"{size} {long}", f"{größe} {lang}")


def distance(rng: Random) -> Clause:
    near, far = rng.sample(lexicon.PLACES, 2)
    length, strecke = amounts.measure(rng, rng.choice(("length-meter", "length-kilometer")))
    start = f"von der {far.german}" if far.gender == "f" else f"vom {far.german}"
    subject, lies = lexicon.one(near), lexicon.LIE
    return say(subject, lies, f"{length} from the {far.english}", f"{strecke} {start}", last="entfernt")


def share(rng: Random) -> Clause:
    number, (group, gruppe) = amounts.some_number(rng, high=99), rng.choice(lexicon.GROUPS)
    (habit, verb, was), (when, wann) = rng.choice(lexicon.HABITS), perhaps(rng, *rng.choice(lexicon.REPEATED))
    percent = (
        format_percent(number / 100, locale="en") if rng.random() < 0.5 else f"{amounts.spell(number, 'en')} percent"
    )
    english, subject = f"{percent} of the {group}", f"{amounts.german(number)} Prozent der {gruppe}"
    return Clause(join(english, habit, when), subject, verb, join(wann, was), question=join("do", english, habit, when))


def telephone(rng: Random) -> Clause:
    digits, phone = (
        [rng.randrange(10) for _ in range(rng.randint(3, 7))],
        rng.choice(("phone number", "telephone number")),
    )
    if rng.random() < 0.5:
        owner, stem = rng.choice(lexicon.POSSESSIVES)
        subject = Subject(f"{owner} {phone}", f"{stem}e Telefonnummer", 2)
    else:
        other, anderer = lexicon.relative(rng, "dative")
        subject = Subject(f"the {phone} of {other}", f"die Telefonnummer von {anderer}", 2)
    return say(subject, lexicon.READ, "".join(map(str, digits)), " ".join(map(amounts.german, digits)))


def address(rng: Random) -> Clause:
    number, (where, wo) = rng.randint(1, 30), perhaps(rng, *place_of(rng))
    ordinal = amounts.spell(number, "en", rng.choice(("ordinal", "ordinal_num")))
    home, wohnung = rng.choice((("house", "im {}n Haus"), ("street", "in der {}n Straße")))
    middle = join(wohnung.format(amounts.spell(number, "de", "ordinal")), wo)
    return say(person(rng), lexicon.LIVE, join(f"in the {ordinal} {home}", where), middle)


def temperature(rng: Random) -> Clause:
    (city, stadt), sign = rng.choice(lexicon.CITIES), rng.choice(("", "", "minus "))
    number = amounts.some_number(rng, high=39)
    degrees, grad = f"{sign}{amounts.english(rng, number)} degrees", f"{sign}{amounts.german(number)} Grad"
    if rng.random() < 0.3:
        degrees, grad = f"{degrees} Celsius", f"{grad} Celsius"
    if rng.random() < 0.5:
        it, (where, wo) = Subject("it", "es", 2), perhaps(rng, f"in {city}", f"in {stadt}")
        return say(it, lexicon.ARE_DEGREES, join(degrees, where), join(grad, wo))
    time, zeit = amounts.clock(rng)
    (when, wann) = perhaps(rng, f"at {time}", f"um {zeit}")
    subject = Subject(join("the temperature in", city, when), f"die Temperatur in {stadt}", 2)
    return say(subject, lexicon.AMOUNT, degrees, join(wann, grad))


TOPICS: tuple[Callable[[Random], Clause], ...] = (
    time_now, departure, event, beginning, today, birthday, birth, meeting, opening, arrival, age, comparison,
    opening_hours, duration, activity, possession, possession, family, fittings, presence, purchase, plan, gift, needs,
    cost, cost, cost, payment, weight, location, length, distance, share, telephone, address, temperature,
)  # fmt: skip
