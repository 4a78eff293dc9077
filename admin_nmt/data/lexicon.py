"""English words with their German counterparts and German inflection, for the sentences of phrasebook.py."""

from random import Random
from typing import NamedTuple

Pair = tuple[str, str]  # English, German


class Noun(NamedTuple):
    """An English noun and its German one, with the German gender m, f or n, and plurals where they are used."""

    english: str
    german: str
    gender: str
    english_plural: str = ""
    german_plural: str = ""


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


def _nouns(table: str) -> list[Noun]:
    return [Noun(*row) for row in _rows(table)]


THINGS = _nouns("""
    apple   | Apfel     | m | apples   | Äpfel
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
    brother     | Bruder     | m
    father      | Vater      | m
    son         | Sohn       | m
    uncle       | Onkel      | m
    teacher     | Lehrer     | m
    sister      | Schwester  | f
    mother      | Mutter     | f
    daughter    | Tochter    | f
    aunt        | Tante      | f
    grandmother | Großmutter | f
    child       | Kind       | n
""")
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
""")
EVENTS = _nouns("""
    course   | Kurs     | m
    lecture  | Vortrag  | m
    meeting  | Sitzung  | f
    party    | Feier    | f
    exam     | Prüfung  | f
    wedding  | Hochzeit | f
    concert  | Konzert  | n
    festival | Fest     | n
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
POSSESSIVES = _rows("""
    my    | mein
    your  | dein
    his   | sein
    her   | ihr
    our   | unser
""")
NAMES = ["Anna", "Peter", "Maria", "Thomas", "Julia", "Martin", "Laura", "Paul"]
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
INGREDIENTS = _rows("""
    flour  | Mehl
    sugar  | Zucker
    rice   | Reis
    butter | Butter
    salt   | Salz
    water  | Wasser
    milk   | Milch
""")
MODALS = _rows("""
    wants to  | will
    has to    | muss
    can       | kann
    should    | soll
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

THE = {"nominative": {"m": "der", "f": "die", "n": "das"}, "dative": {"m": "dem", "f": "der", "n": "dem"}}
EIN_ENDING = {
    "nominative": {"m": "", "f": "e", "n": ""},
    "accusative": {"m": "en", "f": "e", "n": ""},
    "dative": {"m": "em", "f": "er", "n": "em"},
}
ADJECTIVE_ENDING_AFTER_EIN = {"m": "en", "f": "e", "n": "es"}  # accusative


def the(noun: Noun, case: str = "nominative") -> str:
    """The noun with its definite article, in the nominative or dative."""
    return f"{THE[case][noun.gender]} {noun.german}"


def relative(rng: Random, case: str = "nominative") -> Pair:
    """A relative such as my aunt, the German in the given case."""
    (owner, stem), noun = rng.choice(POSSESSIVES), rng.choice(RELATIVES)
    return f"{owner} {noun.english}", f"{stem}{EIN_ENDING[case][noun.gender]} {noun.german}"


def person(rng: Random) -> Pair:
    """A person as subject of a sentence: a relative or a name."""
    name = rng.choice(NAMES)
    return (name, name) if rng.random() < 0.2 else relative(rng)
