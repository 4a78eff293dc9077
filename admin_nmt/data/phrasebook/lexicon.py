"""English words with their German counterparts and German inflection, for the sentences of the phrasebook."""

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
