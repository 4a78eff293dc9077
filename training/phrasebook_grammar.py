"""The grammar of the built-in phrasebook: English sentences with their German, drawn by a seeded generator.

    pip install "admin_nmt[dev]" && python training/phrasebook_grammar.py admin_nmt/data/phrasebook.tsv.bz2

The sentences are about numbers: times, dates, prices, quantities, ages, distances, ordinals, strings of digits. A model
has to read digits and number words, to agree in person, gender, case and number, and to place the German verb: second
in a statement, first in a question, before its subject after an adverb, last in a subordinate clause, with a prefix or
participle that moves apart. Spelled numbers come from num2words; the names of days, months and units and the formats of
numbers and money from Babel (CLDR). The wheel holds the sentences (`admin_nmt.data.phrasebook`), not this grammar.
"""

import bz2
import datetime
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from babel.dates import format_date, format_time
from babel.numbers import format_currency, format_decimal, format_percent
from babel.units import format_unit
from num2words import num2words

from admin_nmt.data.phrasebook import EXAMPLES, SIZES

Pair = tuple[str, str]  # English, German


class Noun(NamedTuple):
    """An English noun and its German one, with the German gender m, f or n, and plurals where they are used."""

    english: str
    german: str
    gender: str
    english_plural: str = ""
    german_plural: str = ""


class Verb(NamedTuple):
    """The present of an English verb and its German one, each for I, you, he and they."""

    english: tuple[str, ...]
    german: tuple[str, ...]


class Subject(NamedTuple):
    """The subject of a clause, and which of the four forms of a verb it takes: 0 I, 1 you, 2 he, 3 they."""

    english: str
    german: str
    form: int


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _nouns(table: str) -> list[Noun]:
    return [Noun(*row) for row in _rows(table)]


def _verb(english: str, german: str) -> Verb:
    """A verb of its forms, or in English of its infinitive where only the third person differs."""
    forms = tuple(english.split("/"))
    return Verb(forms if len(forms) == 4 else (english, english, f"{english}s", english), tuple(german.split("/")))


def _verbs(table: str) -> list[Verb]:
    return [_verb(*row) for row in _rows(table)]


THINGS = _nouns("""
    table   | Tisch     | m | tables   | Tische
    chair   | Stuhl     | m | chairs   | Stühle
    hat     | Hut       | m | hats     | Hüte
    key     | Schlüssel | m | keys     | Schlüssel
    coat    | Mantel    | m | coats    | Mäntel
    flower  | Blume     | f | flowers  | Blumen
    bottle  | Flasche   | f | bottles  | Flaschen
    lamp    | Lampe     | f | lamps    | Lampen
    bag     | Tasche    | f | bags     | Taschen
    clock   | Uhr       | f | clocks   | Uhren
    cup     | Tasse     | f | cups     | Tassen
    book    | Buch      | n | books    | Bücher
    picture | Bild      | n | pictures | Bilder
    shirt   | Hemd      | n | shirts   | Hemden
    glass   | Glas      | n | glasses  | Gläser
    car     | Auto      | n | cars     | Autos
    dress   | Kleid     | n | dresses  | Kleider
    ticket  | Karte     | f | tickets  | Karten
    house   | Haus      | n | houses   | Häuser
    room    | Zimmer    | n | rooms    | Zimmer
    window  | Fenster   | n | windows  | Fenster
    door    | Tür       | f | doors    | Türen
    bed     | Bett      | n | beds     | Betten
    knife   | Messer    | n | knives   | Messer
    kite    | Drachen   | m | kites    | Drachen
    letter  | Brief     | m | letters  | Briefe
    pen     | Stift     | m | pens     | Stifte
    shoe    | Schuh     | m | shoes    | Schuhe
    dog     | Hund      | m | dogs     | Hunde
    cat     | Katze     | f | cats     | Katzen
    phone   | Telefon   | n | phones   | Telefone
    bicycle | Fahrrad   | n | bicycles | Fahrräder
    computer | Computer | m | computers | Computer
""")
FRUIT = _nouns("""
    apple  | Apfel     | m | apples   | Äpfel
    banana | Banane    | f | bananas  | Bananen
    orange | Orange    | f | oranges  | Orangen
    potato | Kartoffel | f | potatoes | Kartoffeln
    tomato | Tomate    | f | tomatoes | Tomaten
    egg    | Ei        | n | eggs     | Eier
""")
DISHES = _nouns("""
    coffee | Kaffee | m | coffees | Kaffees
    tea    | Tee    | m | teas    | Tees
    beer   | Bier   | n | beers   | Biere
    soup   | Suppe  | f | soups   | Suppen
    salad  | Salat  | m | salads  | Salate
    cake   | Kuchen | m | cakes   | Kuchen
    pizza  | Pizza  | f | pizzas  | Pizzen
""")
DRINKS = _nouns("""
    water  | Wasser | n
    milk   | Milch  | f
    coffee | Kaffee | m
    tea    | Tee    | m
    juice  | Saft   | m
    wine   | Wein   | m
    beer   | Bier   | n
""")
VESSELS = _nouns("""
    bottle | Flasche | f | bottles | Flaschen
    cup    | Tasse   | f | cups    | Tassen
    glass  | Glas    | n | glasses | Gläser
""")
TIME_SPANS = _nouns("""
    minute | Minute | f | minutes | Minuten
    hour   | Stunde | f | hours   | Stunden
    day    | Tag    | m | days    | Tage
    week   | Woche  | f | weeks   | Wochen
    month  | Monat  | m | months  | Monate
    year   | Jahr   | n | years   | Jahre
""")
MINUTE, HOUR, DAY, WEEK, MONTH, YEAR = TIME_SPANS
RELATIVES = _nouns("""
    brother     | Bruder     | m | brothers  | Brüder
    son         | Sohn       | m | sons      | Söhne
    uncle       | Onkel      | m | uncles    | Onkel
    teacher     | Lehrer     | m | teachers  | Lehrer
    friend      | Freund     | m | friends   | Freunde
    sister      | Schwester  | f | sisters   | Schwestern
    daughter    | Tochter    | f | daughters | Töchter
    aunt        | Tante      | f | aunts     | Tanten
    child       | Kind       | n | children  | Kinder
    father      | Vater      | m
    mother      | Mutter     | f
    grandmother | Großmutter | f
""")
FAMILY = [noun for noun in RELATIVES if noun.german_plural]
PLACES = _nouns("""
    station    | Bahnhof    | m
    market     | Markt      | m
    park       | Park       | m
    school     | Schule     | f
    church     | Kirche     | f
    library    | Bibliothek | f
    bakery     | Bäckerei   | f
    museum     | Museum     | n
    hotel      | Hotel      | n
    theater    | Theater    | n
    restaurant | Restaurant | n
    town hall  | Rathaus    | n
    shop       | Laden      | m
    airport    | Flughafen  | m
    bank       | Bank       | f
    cinema     | Kino       | n
""")
BUILDINGS = _nouns("""
    house      | Haus       | n
    school     | Schule     | f
    hotel      | Hotel      | n
    restaurant | Restaurant | n
    library    | Bibliothek | f
""")
FITTINGS = [
    noun
    for noun in THINGS
    if noun.english in ("room", "window", "door", "table", "chair", "bed", "lamp", "computer", "book", "picture")
]
INDOORS = _nouns("""
    room    | Zimmer    | n
    class   | Klasse    | f
    house   | Haus      | n
    kitchen | Küche     | f
    garden  | Garten    | m
""") + [place for place in PLACES if place.english not in ("market", "airport")]
EVENTS = _nouns("""
    course   | Kurs     | m
    lecture  | Vortrag  | m
    meeting  | Sitzung  | f
    party    | Feier    | f
    exam     | Prüfung  | f
    wedding  | Hochzeit | f
    concert  | Konzert  | n
    festival | Fest     | n
    film     | Film     | m
""")
JOURNEYS = _nouns("""
    flight  | Flug  | m
    journey | Reise | f
""")
VEHICLES = _nouns("""
    train          | Zug        | m
    bus            | Bus        | m
    night train    | Nachtzug   | m
    express train  | Schnellzug | m
    suburban train | S-Bahn     | f
    ferry          | Fähre      | f
    ship           | Schiff     | n
""")
LONG_THINGS = _nouns("""
    river  | Fluss  | m
    tunnel | Tunnel | m
    street | Straße | f
    bridge | Brücke | f
    wall   | Mauer  | f
    lake   | See    | m
""")
ADJECTIVES = _rows("""
    old       | alt
    new       | neu
    red       | rot
    green     | grün
    blue      | blau
    white     | weiß
    black     | schwarz
    small     | klein
    big       | groß
    heavy     | schwer
    cheap     | billig
    beautiful | schön
""")
MONEY = _nouns("""
    euro        | Euro             | m | euros        | Euro
    dollar      | Dollar           | m | dollars      | Dollar
    US dollar   | US-Dollar        | m | US dollars   | US-Dollar
    pound       | Pfund            | n | pounds       | Pfund
    Swiss franc | Schweizer Franken | m | Swiss francs | Schweizer Franken
""")
PRONOUNS = _rows("""
    I    | ich | 0
    you  | du  | 1
    he   | er  | 2
    she  | sie | 2
    we   | wir | 3
    they | sie | 3
""")
DATIVES = _rows("""
    me   | mir
    you  | dir
    him  | ihm
    her  | ihr
    us   | uns
    them | ihnen
""")
POSSESSIVES = _rows("""
    my    | mein
    your  | dein
    his   | sein
    her   | ihr
    our   | unser
""")
NAMES = ["Anna", "Peter", "Maria", "Thomas", "Julia", "Martin", "Laura", "Paul", "Tom", "Mary"]
CITIES = _rows("""
    Vienna     | Wien
    Munich     | München
    Cologne    | Köln
    Zurich     | Zürich
    Prague     | Prag
    Warsaw     | Warschau
    Rome       | Rom
    Milan      | Mailand
    Venice     | Venedig
    Geneva     | Genf
    Brussels   | Brüssel
    Copenhagen | Kopenhagen
    Lisbon     | Lissabon
    Nuremberg  | Nürnberg
    Berlin     | Berlin
    Paris      | Paris
""")
GROUPS = _rows("""
    teachers | Lehrer
    pupils   | Schüler
    doctors  | Ärzte
    children | Kinder
    guests   | Gäste
    women    | Frauen
    men      | Männer
""")
HABITS = _rows("""
    drink tea    | trinken | Tee
    drink coffee | trinken | Kaffee
    drink milk   | trinken | Milch
    eat bread    | essen   | Brot
    eat fish     | essen   | Fisch
    eat cheese   | essen   | Käse
    buy flowers  | kaufen  | Blumen
    read books   | lesen   | Bücher
    speak German | sprechen | Deutsch
""")
REPEATED = _rows("""
    every day      | jeden Tag
    in the morning | morgens
    in the evening | abends
    at home        | zu Hause
    every Sunday   | jeden Sonntag
""")
INGREDIENTS = _nouns("""
    flour  | Mehl   | n
    sugar  | Zucker | m
    rice   | Reis   | m
    butter | Butter | f
    salt   | Salz   | n
    bread  | Brot   | n
    cheese | Käse   | m
    meat   | Fleisch | n
    fish   | Fisch  | m
""")
BE = _verb("am/are/is/are", "bin/bist/ist/sind")
WAS = _verb("was/were/was/were", "wurde/wurdest/wurde/wurden")
HAVE = _verb("have/have/has/have", "habe/hast/hat/haben")
NEED = _verb("need", "brauche/brauchst/braucht/brauchen")
BUY = _verb("buy", "kaufe/kaufst/kauft/kaufen")
LIKE = _verb("would like/would like/would like/would like", "möchte/möchtest/möchte/möchten")
GIVE = _verb("give", "gebe/gibst/gibt/geben")
COST = _verb("cost", "koste/kostest/kostet/kosten")
WEIGH = _verb("weigh", "wiege/wiegst/wiegt/wiegen")
LIVE = _verb("live", "wohne/wohnst/wohnt/wohnen")
LEAVE = _verb("leave", "fahre/fährst/fährt/fahren")
ARRIVE = _verb("arrive", "komme/kommst/kommt/kommen")
OPEN = _verb("open", "öffne/öffnest/öffnet/öffnen")
CLOSE = _verb("close", "schließe/schließt/schließt/schließen")
BEGIN = _verb("begin", "beginne/beginnst/beginnt/beginnen")
START = _verb("start", "beginne/beginnst/beginnt/beginnen")
END = _verb("end", "ende/endest/endet/enden")
LAST = _verb("take", "dauere/dauerst/dauert/dauern")
MEET = _verb("meet", "treffe/triffst/trifft/treffen")
TAKE_PLACE = _verb("take", "finde/findest/findet/finden")
THERE_ARE = _verb("are/are/are/are", "gibt/gibt/gibt/gibt")
ARE_DEGREES = _verb("is/is/is/is", "sind/sind/sind/sind")
LIE = _verb("am/are/is/are", "liege/liegst/liegt/liegen")
READ = _verb("am/are/is/are", "laute/lautest/lautet/lauten")
AMOUNT = _verb("am/are/is/are", "betrage/beträgst/beträgt/betragen")
ACTIVITIES = _verbs("""
    work  | arbeite/arbeitest/arbeitet/arbeiten
    sleep | schlafe/schläfst/schläft/schlafen
    wait  | warte/wartest/wartet/warten
    read  | lese/liest/liest/lesen
""")
FREQUENCIES = _rows("""
    a day            | | am Tag
    a week           | | in der Woche
    every day        | jeden Tag |
    every Monday     | jeden Montag |
    every night      | jede Nacht |
                     | |
""")
MODALS = _verbs("""
    want to/want to/wants to/want to | will/willst/will/wollen
    have to/have to/has to/have to   | muss/musst/muss/müssen
    can/can/can/can                  | kann/kannst/kann/können
    should/should/should/should      | soll/sollst/soll/sollen
    will/will/will/will              | werde/wirst/wird/werden
""")
DEALS = _rows("""
    buy    | kaufen     | bought   | gekauft
    sell   | verkaufen  | sold     | verkauft
    order  | bestellen  | ordered  | bestellt
    repair | reparieren | repaired | repariert
    rent   | mieten     | rented   | gemietet
    clean  | putzen     | cleaned  | geputzt
""")
POSITIONS = _rows("""
    in front of | vor
    behind      | hinter
    next to     | neben
""")
REFLEXIVES = _rows("""
    we         | wir        | uns
    they       | sie        | sich
    the pupils | die Schüler | sich
    the guests | die Gäste  | sich
""")
SUBORDINATE_FRAMES = _rows("""
    I know that {}.                   | Ich weiß, dass {}.
    She says that {}.                 | Sie sagt, dass {}.
    We hope that {}.                  | Wir hoffen, dass {}.
    It is good that {}.               | Es ist gut, dass {}.
    They did not know that {}.        | Sie wussten nicht, dass {}.
    Do you believe that {}?           | Glaubst du, dass {}?
    Do you know whether {}?           | Weißt du, ob {}?
    He asks whether {}.               | Er fragt, ob {}.
    I am happy because {}.            | Ich freue mich, weil {}.
    My boss is angry because {}.      | Mein Chef ist wütend, weil {}.
""")
ADVERB_FRAMES = _rows("""
    Unfortunately, {}.                | Leider {}.
    Of course, {}.                    | Natürlich {}.
    Perhaps {}.                       | Vielleicht {}.
    According to the newspaper, {}.   | Laut der Zeitung {}.
    As you see, {}.                   | Wie du siehst, {}.
""")

GREETINGS = _rows("""
    Excuse me    | Entschuldigung
    Good morning | Guten Morgen
    Good evening | Guten Abend
    Hello        | Hallo
""") + [[name, name] for name in NAMES]

THE = {
    "nominative": {"m": "der", "f": "die", "n": "das"},
    "accusative": {"m": "den", "f": "die", "n": "das"},
    "dative": {"m": "dem", "f": "der", "n": "dem"},
}
EIN_ENDING = {
    "nominative": {"m": "", "f": "e", "n": ""},
    "accusative": {"m": "en", "f": "e", "n": ""},
    "dative": {"m": "em", "f": "er", "n": "em"},
}
ADJECTIVE_ENDING_AFTER_EIN = {"m": "en", "f": "e", "n": "es"}  # accusative


def the(noun: Noun, case: str = "nominative") -> str:
    """The German noun with its definite article."""
    return f"{THE[case][noun.gender]} {noun.german}"


def a(noun: Noun) -> str:
    """The English noun with its indefinite article."""
    return f"{'an' if noun.english[0] in 'aeiou' else 'a'} {noun.english}"


def ein(noun: Noun) -> str:
    """The German noun with its indefinite article, in the nominative."""
    return f"ein{EIN_ENDING['nominative'][noun.gender]} {noun.german}"


def inside(noun: Noun) -> str:
    """In a place, in German."""
    return f"in der {noun.german}" if noun.gender == "f" else f"im {noun.german}"


def owned(rng: Random, noun: Noun, case: str = "nominative") -> Pair:
    """The noun with a possessive, such as my aunt, the German in the given case."""
    owner, stem = rng.choice(POSSESSIVES)
    return f"{owner} {noun.english}", f"{stem}{EIN_ENDING[case][noun.gender]} {noun.german}"


def relative(rng: Random, case: str = "nominative") -> Pair:
    """A relative such as my aunt, the German in the given case."""
    return owned(rng, rng.choice(RELATIVES), case)


def one(noun: Noun) -> Subject:
    """The thing itself, with its article, as subject."""
    return Subject(f"the {noun.english}", the(noun), 2)


# Numbers, counted things, prices, measures, times and dates. Small and round numbers come more often than others, and
# so do times at a multiple of five minutes, as in speech.

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


def english_number(rng: Random, number: int) -> str:
    """A number in words or digits."""
    return spell(number, "en") if number < 1000 and rng.random() < 0.5 else decimal(number, "en")


def german_number(number: int) -> str:
    """A number in words."""
    return spell(number, "de")


def count(rng: Random, noun: Noun, number: int, case: str = "accusative") -> Pair:
    """A number of things, in the accusative or, for time spans, in the dative."""
    if number == 1:
        return f"one {noun.english}", f"ein{EIN_ENDING[case][noun.gender]} {noun.german}"
    dative = "" if case != "dative" or noun.german_plural.endswith("n") else "n"
    return (
        f"{english_number(rng, number)} {noun.english_plural}",
        f"{german_number(number)} {noun.german_plural}{dative}",
    )


def described(rng: Random, noun: Noun, number: int) -> Noun:
    """The noun with an adjective, as it is in the accusative after this number."""
    adjective, adjektiv = rng.choice(ADJECTIVES)
    ending = ADJECTIVE_ENDING_AFTER_EIN[noun.gender] if number == 1 else "e"
    return noun._replace(
        english=f"{adjective} {noun.english}",
        german=f"{adjektiv}{ending} {noun.german}",
        english_plural=f"{adjective} {noun.english_plural}",
        german_plural=f"{adjektiv}{ending} {noun.german_plural}",
    )


def things(rng: Random) -> Pair:
    """One or several things as an accusative object, some with an adjective."""
    noun = rng.choice((*THINGS, *FRUIT))
    number = 1 if rng.random() < 0.25 else some_number(rng)
    if rng.random() < 0.3:
        noun = described(rng, noun, number)
    thing, ding = count(rng, noun, number)
    return (a(noun), ding) if number == 1 and rng.random() < 0.6 else (thing, ding)


def groceries(rng: Random) -> Pair:
    """An amount of something to eat or drink, as an accusative object."""
    kind = rng.random()
    if kind < 0.4:
        (vessel, gefäß), drink = portions(rng, rng.choice(VESSELS)), rng.choice(DRINKS)
        return f"{vessel} of {drink.english}", f"{gefäß} {drink.german}"
    if kind < 0.6:
        return portions(rng, rng.choice(DISHES))
    amount, menge = measure(rng, rng.choice(("mass-gram", "mass-kilogram")))
    food = rng.choice((*INGREDIENTS, *FRUIT))
    return f"{amount} of {food.english_plural or food.english}", f"{menge} {food.german_plural or food.german}"


def portions(rng: Random, noun: Noun) -> Pair:
    """A few of a kind, as at a table."""
    if rng.random() < 0.3:
        return a(noun), count(rng, noun, 1)[1]
    return count(rng, noun, some_number(rng, low=1, high=20))


def clock(rng: Random) -> Pair:
    """A time of day as timetables give it, or as people say it: half past two is "halb drei"."""
    kind = rng.random()
    if kind < 0.55:
        return spoken_clock(rng)
    hour, minute = rng.randrange(24), 5 * rng.randrange(12) if rng.random() < 0.7 else rng.randrange(60)
    zeit = join(f"{'ein' if hour == 1 else german_number(hour)} Uhr", german_number(minute) if minute else "")
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
    past, nach = spell(hour, "en"), german_number(hour)
    to, vor = spell(hour % 12 + 1, "en"), german_number(hour % 12 + 1)
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


def random_day(rng: Random) -> datetime.date:
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


def day_name(day: datetime.date) -> Pair:
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
    noun = rng.choice(MONEY)
    if rng.random() < 0.1:
        number = 1000 * rng.randint(1, 12)
        digits = rng.choice((str(number), decimal(number, "en")))
        return f"{digits} {noun.english_plural}", f"{german_number(number)} {noun.german_plural}"
    amount, betrag = count(rng, noun, some_number(rng, low=1))
    if noun.english[-4:] not in ("euro", "llar") or rng.random() < 0.75:
        return amount, betrag
    cents = rng.randrange(5, 100, 5)
    return f"{amount} and {english_number(rng, cents)} cents", f"{betrag} und {german_number(cents)} Cent"


def any_price(rng: Random) -> Pair:
    """An amount of money in words or digits."""
    return spelled_price(rng) if rng.random() < 0.65 else price(rng)


def measure(rng: Random, unit: str, high: int = 999) -> Pair:
    """A whole number of a unit of CLDR, such as "length-meter"; the German number is spelled."""
    number = some_number(rng, high=high)
    amount = of_unit(number, unit, "en").replace(decimal(number, "en"), english_number(rng, number))
    menge = of_unit(number, unit, "de").replace(decimal(number, "de"), german_number(number))
    return amount, menge


# Statements: one function a topic


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
        english, german, form = rng.choice(PRONOUNS)
        return Subject(english, german, int(form))
    if kind < 0.52:
        name = rng.choice(NAMES)
        return Subject(name, name, 2)
    if kind < 0.9:
        return Subject(*relative(rng), 2)
    number, (people, leute) = some_number(rng, high=99), rng.choice(GROUPS)
    return Subject(f"{english_number(rng, number)} {people}", f"{german_number(number)} {leute}", 3)


def perhaps(rng: Random, english: str, german: str) -> Pair:
    """A part of a clause that is left out half of the time."""
    return (english, german) if rng.random() < 0.5 else ("", "")


# When


def time_now(rng: Random) -> Clause:
    return say(Subject("it", "es", 2), BE, *clock(rng))


def departure(rng: Random) -> Clause:
    vehicle, (city, stadt), (when, wann) = rng.choice(VEHICLES), rng.choice(CITIES), moment(rng)
    leaves = rng.random() < 0.5
    (route, strecke) = perhaps(rng, f"{'to' if leaves else 'from'} {city}", f"{'nach' if leaves else 'aus'} {stadt}")
    subject = Subject(join(f"the {vehicle.english}", route), join(the(vehicle), strecke), 2)
    if leaves:
        return say(subject, LEAVE, when, wann, prefix="ab")
    return say(subject, ARRIVE, when, wann, prefix="an")


def moment(rng: Random) -> Pair:
    """At a time, on a day, or in some minutes."""
    kind = rng.random()
    if kind < 0.6:
        time, zeit = clock(rng)
        return f"at {time}", f"um {zeit}"
    if kind < 0.72:
        return day(rng)
    if kind < 0.85:
        on, am = rng.choice((("today", "heute"), ("tomorrow", "morgen"), _every(rng)))
        time, zeit = clock(rng)
        at, um = perhaps(rng, f"at {time}", f"um {zeit}")
        return join(on, at), join(am, um)
    unit = rng.choice(TIME_SPANS[:3])
    span, frist = count(rng, unit, some_number(rng, low=1, high=60), "dative")
    return f"in {span}", f"in {frist}"


def _every(rng: Random) -> Pair:
    weekday, wochentag = day_name(random_day(rng))
    return f"every {weekday}", f"jeden {wochentag}"


def day(rng: Random) -> Pair:
    """On a weekday, on a date, or on both; some with a time."""
    some_day = random_day(rng)
    (weekday, wochentag) = day_name(some_day)
    date, tag = english_date(rng, some_day), german_date(some_day)
    when, wann = rng.choice(
        (
            (f"on {weekday}", f"am {wochentag}"),
            (f"on {date}", f"am {tag}"),
            (f"on {weekday}, {date}", f"am {wochentag}, dem {tag},"),
        )
    )
    if rng.random() < 0.6:
        return when, wann
    time, zeit = clock(rng)
    return f"{when}{',' if ',' in when else ''} at {time}", f"{wann} um {zeit}"


def event(rng: Random) -> Clause:
    subject, (when, wann) = one(rng.choice(EVENTS)), day(rng)
    if rng.random() < 0.5:
        return say(subject, TAKE_PLACE, f"place {when}", wann, prefix="statt")
    return say(subject, BE, when, wann)


def beginning(rng: Random) -> Clause:
    subject, verb = one(rng.choice(EVENTS)), rng.choice((BEGIN, START, END))
    return say(subject, verb, *moment(rng))


def today(rng: Random) -> Clause:
    some_day = random_day(rng)
    (weekday, wochentag) = day_name(some_day)
    date, tag = english_date(rng, some_day), f"der {german_date(some_day, '')}"
    what, was = rng.choice(
        ((weekday, wochentag), (date, tag), (date, tag), (f"{weekday}, {date}", f"{wochentag}, {tag}"))
    )
    subject = rng.choice((Subject("today", "heute", 2), Subject("tomorrow", "morgen", 2)))
    return say(subject, BE, what, was)


def birthday(rng: Random) -> Clause:
    some_day = random_day(rng)
    date, tag = english_date(rng, some_day), german_date(some_day)
    if rng.random() < 0.5:
        owner, stem = rng.choice(POSSESSIVES)
        subject = Subject(f"{owner} birthday", f"{stem} Geburtstag", 2)
    else:
        other, anderer = relative(rng, "dative")
        subject = Subject(f"the birthday of {other}", f"der Geburtstag von {anderer}", 2)
    return say(subject, BE, f"on {date}", f"am {tag}")


def birth(rng: Random) -> Clause:
    some_day, subject = random_day(rng), person(rng)
    date, tag = english_date(rng, some_day), german_date(some_day)
    year = spell(some_day.year, "de", "year")
    kind = rng.random()
    if kind < 0.25:
        return say(subject, WAS, f"born in {some_day.year}", year, last="geboren")
    if kind < 0.4:
        return say(subject, WAS, f"born on {date}", f"am {tag}", last="geboren")
    return say(subject, WAS, f"born on {date}, {some_day.year}", f"am {tag} {year}", last="geboren")


def meeting(rng: Random) -> Clause:
    (english, german, reflexive), (when, wann) = rng.choice(REFLEXIVES), moment(rng)
    (position, stelle), place = rng.choice(POSITIONS), rng.choice(PLACES)
    (where, wo) = perhaps(rng, f"{position} the {place.english}", f"{stelle} {the(place, 'dative')}")
    return say(Subject(english, german, 3), MEET, join(when, where), join(reflexive, wann, wo))


def opening(rng: Random) -> Clause:
    place, (city, stadt), (when, wann) = rng.choice(PLACES), rng.choice(CITIES), moment(rng)
    (where, wo) = perhaps(rng, f"in {city}", f"in {stadt}")
    subject = Subject(join(f"the {place.english}", where), join(the(place), wo), 2)
    return say(subject, rng.choice((OPEN, CLOSE)), when, wann)


def opening_hours(rng: Random) -> Clause:
    place, (start, anfang), (end, ende) = rng.choice(PLACES), clock(rng), clock(rng)
    english, german = f"open from {start} to {end}", f"von {anfang} bis {ende}"
    return say(one(place), BE, english, german, last="geöffnet")


def arrival(rng: Random) -> Clause:
    subject, (when, wann) = person(rng), moment(rng)
    if rng.random() < 0.6:
        return say(subject, ARRIVE, when, wann, prefix="an")
    return say(subject, rng.choice(MODALS), f"arrive {when}", wann, last="ankommen")


# How long


def age(rng: Random) -> Clause:
    subject, number = person(rng), some_number(rng, low=1, high=99)
    years, jahre = count(rng, YEAR, number)
    return say(subject, BE, f"{years} old", f"{jahre} alt")


def comparison(rng: Random) -> Clause:
    subject, (other, anderer) = person(rng), relative(rng)
    unit = rng.choice((WEEK, MONTH, YEAR))
    years, jahre = count(rng, unit, some_number(rng, low=1, high=30))
    than, als = rng.choice((("older than", "älter als"), ("younger than", "jünger als")))
    return say(subject, BE, f"{years} {than} {other}", f"{jahre} {als} {anderer}")


def duration(rng: Random) -> Clause:
    hours, stunden = time_span(rng)
    if rng.random() < 0.5:
        return say(one(rng.choice((*EVENTS, *JOURNEYS))), LAST, hours, stunden)
    (start, anfang), (end, ende) = rng.sample(CITIES, 2)
    journey = rng.choice(JOURNEYS)
    english = f"the {journey.english} from {start} to {end}"
    return say(Subject(english, f"{the(journey)} von {anfang} nach {ende}", 2), LAST, hours, stunden)


def time_span(rng: Random) -> Pair:
    """Some minutes, hours, days or weeks, or hours and minutes."""
    if rng.random() < 0.7:
        unit = rng.choice((MINUTE, HOUR, HOUR, DAY, WEEK))
        return count(rng, unit, some_number(rng, low=1, high=90))
    hours, stunden = count(rng, HOUR, some_number(rng, low=1, high=48))
    minutes, minuten = count(rng, MINUTE, some_number(rng, low=1, high=59))
    return f"{hours} and {minutes}", f"{stunden} und {minuten}"


def activity(rng: Random) -> Clause:
    verb, (often, before, after) = rng.choice(ACTIVITIES), rng.choice(FREQUENCIES)
    hours, stunden = count(rng, HOUR, some_number(rng, low=1, high=24))
    return say(person(rng), verb, join(hours, often), join(before, stunden, after))


# How much


def possession(rng: Random) -> Clause:
    verb = rng.choice((HAVE, NEED, BUY, LIKE))
    money = verb != BUY and rng.random() < 0.2
    return say(person(rng), verb, *(spelled_price(rng) if money else goods(rng)))


def goods(rng: Random) -> Pair:
    """Things or groceries, as an accusative object."""
    return things(rng) if rng.random() < 0.5 else groceries(rng)


def family(rng: Random) -> Clause:
    some, other = rng.sample(FAMILY, 2)
    relatives, verwandte = count(rng, some, some_number(rng, low=1, high=12))
    if rng.random() < 0.5:
        others, andere = count(rng, other, some_number(rng, low=1, high=12))
        relatives, verwandte = f"{relatives} and {others}", f"{verwandte} und {andere}"
    return say(person(rng), HAVE, relatives, verwandte)


def fittings(rng: Random) -> Clause:
    building, thing = rng.choice(BUILDINGS), rng.choice(FITTINGS)
    subject = Subject(*owned(rng, building), 2) if rng.random() < 0.6 else one(building)
    return say(subject, HAVE, *count(rng, thing, some_number(rng, low=1, high=99)))


def presence(rng: Random) -> Clause:
    number, place = some_number(rng), rng.choice(INDOORS)
    if rng.random() < 0.5:
        people, leute = rng.choice(GROUPS)
        what, was = f"{english_number(rng, number)} {people}", f"{german_number(number)} {leute}"
    else:
        what, was = count(rng, rng.choice(THINGS), number)
    what, was = f"{what} in the {place.english}", f"{was} {inside(place)}"
    return say(Subject("there", "es", 3), THERE_ARE, what, was)


def deal(rng: Random) -> tuple[Pair, Pair, Pair]:
    """What is done, as infinitives and as English past with German participle, and to what."""
    infinitive, verb, past, participle = rng.choice(DEALS)
    object_ = goods(rng) if infinitive in ("buy", "sell", "order") else things(rng)
    return (infinitive, verb), (past, participle), object_


def purchase(rng: Random) -> Clause:
    subject, (_, (past, participle), (what, was)) = person(rng), deal(rng)
    if rng.random() < 0.6:
        price, preis = any_price(rng)
        what, was = f"{what} for {price}", f"{was} für {preis}"
    have = HAVE.german[subject.form]
    return Clause(f"{subject.english} {past} {what}", subject.german, have, was, last=participle)


def plan(rng: Random) -> Clause:
    subject, modal, ((infinitive, verb), _, (what, was)) = person(rng), rng.choice(MODALS), deal(rng)
    other, wen = relative(rng, "accusative")
    whom, für = perhaps(rng, f"for {other}", f"für {wen}")
    return say(subject, modal, join(infinitive, what, whom), join(was, für), last=verb)


def gift(rng: Random) -> Clause:
    subject, (what, was) = (
        person(rng),
        things(rng) if rng.random() < 0.6 else spelled_price(rng),
    )
    if rng.random() < 0.5:
        me, mir = rng.choice(DATIVES)
        return say(subject, GIVE, f"{me} {what}", f"{mir} {was}")
    other, wem = relative(rng, "dative")
    return say(subject, GIVE, f"{what} to {other}", f"{wem} {was}")


def needs(rng: Random) -> Clause:
    (what, was), (more, mehr) = groceries(rng), things(rng)
    return say(person(rng), NEED, f"{what} and {more}", f"{was} und {mehr}")


def cost(rng: Random) -> Clause:
    """What one or several things cost, the red hat, two books, a coffee or it."""
    noun, kind = rng.choice((*THINGS, *FRUIT, *DISHES)), rng.random()
    if kind < 0.08:
        subject = Subject("it", "es", 2)
    elif kind < 0.3:
        subject = one(noun)
    elif kind < 0.4:
        subject = Subject(f"the {noun.english_plural}", f"die {noun.german_plural}", 3)
    elif kind < 0.5:
        subject = Subject(rng.choice((a(noun), f"one {noun.english}")), ein(noun), 2)
    elif kind < 0.8:
        subject = Subject(*count(rng, noun, some_number(rng, high=99)), 3)
    else:
        subject = _described(rng, rng.choice(THINGS))
    return say(subject, COST, *any_price(rng))


def _described(rng: Random, noun: Noun) -> Subject:
    adjective, adjektiv = rng.choice(ADJECTIVES)
    if rng.random() < 0.5:
        german = f"{THE['nominative'][noun.gender]} {adjektiv}e {noun.german}"
        return Subject(f"the {adjective} {noun.english}", german, 2)
    return Subject(f"the {adjective} {noun.english_plural}", f"die {adjektiv}en {noun.german_plural}", 3)


def payment(rng: Random) -> Clause:
    noun, subject, (price, preis) = rng.choice(THINGS), person(rng), any_price(rng)
    german = f"{preis} für {the(noun, 'accusative')}"
    have = HAVE.german[subject.form]
    return Clause(
        f"{subject.english} paid {price} for the {noun.english}", subject.german, have, german, last="bezahlt"
    )


def weight(rng: Random) -> Clause:
    noun = rng.choice(THINGS)
    if rng.random() < 0.6:
        weight, gewicht = measure(rng, rng.choice(("mass-gram", "mass-kilogram")))
    else:
        tenths = rng.randrange(10) + rng.randint(1, 9) / 10
        weight, gewicht = (format_unit(tenths, "mass-kilogram", locale=locale) for locale in ("en", "de"))
    if rng.random() < 0.3:
        return say(person(rng), WEIGH, weight, gewicht)
    (where, wo) = perhaps(rng, *place_of(rng))
    subject = Subject(join(f"the {noun.english}", where), join(the(noun), wo), 2)
    return say(subject, WEIGH, weight, gewicht)


def place_of(rng: Random) -> Pair:
    """Where something is, behind the station."""
    (position, stelle), place = rng.choice(POSITIONS), rng.choice(PLACES)
    return f"{position} the {place.english}", f"{stelle} {the(place, 'dative')}"


def location(rng: Random) -> Clause:
    noun = rng.choice((*THINGS, *PLACES))
    where, wo = place_of(rng)
    subject = Subject(*owned(rng, noun), 2) if noun in THINGS and rng.random() < 0.4 else one(noun)
    return say(subject, BE, where, wo)


def length(rng: Random) -> Clause:
    size, größe = measure(rng, rng.choice(("length-meter", "length-kilometer")))
    long, lang = rng.choice((("long", "lang"), ("wide", "breit")))
    if rng.random() < 0.4:
        size, größe = measure(rng, rng.choice(("length-meter", "length-centimeter")))
        subject = one(rng.choice(THINGS))
    else:
        thing, (city, stadt) = rng.choice(LONG_THINGS), rng.choice(CITIES)
        (where, wo) = perhaps(rng, f"near {city}", f"bei {stadt}")
        subject = Subject(join(f"the {thing.english}", where), join(the(thing), wo), 2)
    return say(subject, BE, f"{size} {long}", f"{größe} {lang}")


def distance(rng: Random) -> Clause:
    near, far = rng.sample(PLACES, 2)
    length, strecke = measure(rng, rng.choice(("length-meter", "length-kilometer")))
    start = f"von der {far.german}" if far.gender == "f" else f"vom {far.german}"
    subject, lies = one(near), LIE
    return say(subject, lies, f"{length} from the {far.english}", f"{strecke} {start}", last="entfernt")


def share(rng: Random) -> Clause:
    number, (group, gruppe) = some_number(rng, high=99), rng.choice(GROUPS)
    (habit, verb, was), (when, wann) = rng.choice(HABITS), perhaps(rng, *rng.choice(REPEATED))
    percent = format_percent(number / 100, locale="en") if rng.random() < 0.5 else f"{spell(number, 'en')} percent"
    english, subject = f"{percent} of the {group}", f"{german_number(number)} Prozent der {gruppe}"
    return Clause(join(english, habit, when), subject, verb, join(wann, was), question=join("do", english, habit, when))


def telephone(rng: Random) -> Clause:
    digits, phone = (
        [rng.randrange(10) for _ in range(rng.randint(3, 7))],
        rng.choice(("phone number", "telephone number")),
    )
    if rng.random() < 0.5:
        owner, stem = rng.choice(POSSESSIVES)
        subject = Subject(f"{owner} {phone}", f"{stem}e Telefonnummer", 2)
    else:
        other, anderer = relative(rng, "dative")
        subject = Subject(f"the {phone} of {other}", f"die Telefonnummer von {anderer}", 2)
    return say(subject, READ, "".join(map(str, digits)), " ".join(map(german_number, digits)))


def address(rng: Random) -> Clause:
    number, (where, wo) = rng.randint(1, 30), perhaps(rng, *place_of(rng))
    ordinal = spell(number, "en", rng.choice(("ordinal", "ordinal_num")))
    home, wohnung = rng.choice((("house", "im {}n Haus"), ("street", "in der {}n Straße")))
    middle = join(wohnung.format(spell(number, "de", "ordinal")), wo)
    return say(person(rng), LIVE, join(f"in the {ordinal} {home}", where), middle)


def temperature(rng: Random) -> Clause:
    (city, stadt), sign = rng.choice(CITIES), rng.choice(("", "", "minus "))
    number = some_number(rng, high=39)
    degrees, grad = f"{sign}{english_number(rng, number)} degrees", f"{sign}{german_number(number)} Grad"
    if rng.random() < 0.3:
        degrees, grad = f"{degrees} Celsius", f"{grad} Celsius"
    if rng.random() < 0.5:
        it, (where, wo) = Subject("it", "es", 2), perhaps(rng, f"in {city}", f"in {stadt}")
        return say(it, ARE_DEGREES, join(degrees, where), join(grad, wo))
    time, zeit = clock(rng)
    (when, wann) = perhaps(rng, f"at {time}", f"um {zeit}")
    subject = Subject(join("the temperature in", city, when), f"die Temperatur in {stadt}", 2)
    return say(subject, AMOUNT, degrees, join(wann, grad))


TOPICS: tuple[Callable[[Random], Clause], ...] = (
    time_now, departure, event, beginning, today, birthday, birth, meeting, opening, arrival, age, comparison,
    opening_hours, duration, activity, possession, possession, family, fittings, presence, purchase, plan, gift, needs,
    cost, cost, cost, payment, weight, location, length, distance, share, telephone, address, temperature,
)  # fmt: skip


# Questions that begin with how much, how old, when, where


def how_much(rng: Random) -> Pair:
    noun = rng.choice((*THINGS, *FRUIT, *DISHES))
    if rng.random() < 0.5:
        return f"how much does the {noun.english} cost?", f"wie viel kostet {the(noun)}?"
    if rng.random() < 0.4:
        return f"how much do the {noun.english_plural} cost?", f"wie viel kosten die {noun.german_plural}?"
    things, dinge = count(rng, noun, some_number(rng, high=20))
    return f"how much do {things} cost?", f"wie viel kosten {dinge}?"


def how_many(rng: Random) -> Pair:
    subject, verb = person(rng), rng.choice((HAVE, NEED, BUY))
    noun = rng.choice((*THINGS, *FRUIT, *(FAMILY if verb == HAVE else ())))
    english = f"{'does' if subject.form == 2 else 'do'} {subject.english} {verb.english[0]}"
    german = f"{verb.german[subject.form]} {subject.german}"
    return f"how many {noun.english_plural} {english}?", f"wie viele {noun.german_plural} {german}?"


def how_old(rng: Random) -> Pair:
    subject = person(rng)
    be, sein = BE.english[subject.form], BE.german[subject.form]
    return f"how old {be} {subject.english}?", f"wie alt {sein} {subject.german}?"


def how_far(rng: Random) -> Pair:
    near, far = rng.sample(PLACES, 2)
    start = f"von der {near.german}" if near.gender == "f" else f"vom {near.german}"
    end = f"zur {far.german}" if far.gender == "f" else f"zum {far.german}"
    return f"how far is it from the {near.english} to the {far.english}?", f"wie weit ist es {start} {end}?"


def how_long(rng: Random) -> Pair:
    (start, anfang), (end, ende) = rng.sample(CITIES, 2)
    noun = rng.choice((*JOURNEYS, *EVENTS))
    route, strecke = "", ""
    if noun in JOURNEYS:
        route, strecke = f"from {start} to {end}", f"von {anfang} nach {ende}"
    return join("how long does the", noun.english, route, "take?"), join("wie lange dauert", the(noun), strecke) + "?"


def what_time(rng: Random) -> Pair:
    city, stadt = rng.choice(CITIES)
    where, wo = perhaps(rng, f"in {city}", f"in {stadt}")
    return join("what time is it", where) + "?", join("wie spät ist es", wo) + "?"


def when(rng: Random) -> Pair:
    kind, (city, stadt) = rng.random(), rng.choice(CITIES)
    if kind < 0.25:
        vehicle = rng.choice(VEHICLES)
        to, nach = perhaps(rng, f"to {city}", f"nach {stadt}")
        return join("when does the", vehicle.english, to, "leave?"), join("wann fährt", the(vehicle), nach, "ab?")
    if kind < 0.5:
        vehicle = rng.choice(VEHICLES)
        source, aus = perhaps(rng, f"from {city}", f"aus {stadt}")
        german = join("wann kommt", the(vehicle), aus, "an?")
        return join("when does the", vehicle.english, source, "arrive?"), german
    verb = rng.choice((OPEN, CLOSE) if kind < 0.75 else (BEGIN, START, END))
    noun = rng.choice(PLACES if kind < 0.75 else EVENTS)
    return f"when does the {noun.english} {verb.english[0]}?", f"wann {verb.german[2]} {the(noun)}?"


def where(rng: Random) -> Pair:
    if rng.random() < 0.6:
        place = rng.choice(PLACES)
        return f"where is the {place.english}?", f"wo ist {the(place)}?"
    thing, ding = owned(rng, rng.choice(THINGS))
    return f"where is {thing}?", f"wo ist {ding}?"


QUESTIONS: tuple[Callable[[Random], Pair], ...] = (
    how_much, how_many, how_old, how_far, how_long, what_time, when, where
)  # fmt: skip


# The corpus: no two sentences alike

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
    hello, hallo = rng.choice(GREETINGS)
    return f"{hello}, {question[0]}", f"{hallo}, {question[1]}"


def _said(rng: Random) -> Pair:
    clause, order = rng.choice(TOPICS)(rng), rng.random()
    if order < 0.1 and clause.question:
        return _greeted(rng, (f"{clause.question}?", f"{clause.inverted()}?"))
    if order < 0.6:
        return f"{clause.english}.", f"{clause.main()}."
    if order < 0.75:
        frame, rahmen = rng.choice(ADVERB_FRAMES)
        return frame.format(clause.english), rahmen.format(clause.inverted())
    frame, rahmen = rng.choice(SUBORDINATE_FRAMES)
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


def drawn_pairs(count: int, seed: int = 0) -> list[Pair]:
    """The first pairs of (English, German) sentences that a seed draws.

    Raises:
        ValueError: the grammar cannot make so many distinct pairs.
    """
    return list(islice(_distinct_pairs(Random(seed)), count))


def main() -> None:
    """Write the sentences of the built-in phrasebook: those of test, of valid and of train, one after the other."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    text = "".join(f"{english}\t{german}\n" for english, german in drawn_pairs(sum(SIZES.values())))
    Path(sys.argv[1]).write_bytes(bz2.compress(text.encode()))


if __name__ == "__main__":
    main()
