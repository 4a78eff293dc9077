"""A small English-German corpus made by a grammar, for runs without a download.

Its sentences are about numbers: times, dates, prices, quantities, ages, distances, ordinals, strings of digits. A model
has to read digits and number words, to agree in person, gender, case and number, and to place the German verb: second
in a statement, first in a question, before its subject after an adverb, last in a subordinate clause, with a prefix or
participle that moves apart. Spelled numbers come from num2words; the names of days, months and units and the formats of
numbers and money from Babel (CLDR).
"""

from .corpus import BUILTIN_CORPORA, Splits, phrasebook, write_phrasebook
from .examples import EXAMPLES

__all__ = ["BUILTIN_CORPORA", "EXAMPLES", "Splits", "phrasebook", "write_phrasebook"]
