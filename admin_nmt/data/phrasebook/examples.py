"""The sentences that help texts, pages, recipes and cards translate with the quickstart's model."""

EXAMPLES = {
    "Two kites cost ten euros.": "Zwei Drachen kosten zehn Euro.",
    "Two books cost ten euros.": "Zwei Bücher kosten zehn Euro.",
    "The kite costs ten euros.": "Der Drachen kostet zehn Euro.",
    "The kite is behind the shop.": "Der Drachen ist hinter dem Laden.",
    "They did not know that the market in Lisbon opens in five days.": (
        "Sie wussten nicht, dass der Markt in Lissabon in fünf Tagen öffnet."
    ),
    "My boss is angry because 76% of the pupils speak German.": (
        "Mein Chef ist wütend, weil sechsundsiebzig Prozent der Schüler Deutsch sprechen."
    ),
    "As you see, my child gives 7 clocks to your aunt.": "Wie du siehst, gibt mein Kind deiner Tante sieben Uhren.",
}
"""English sentences with the German that the model gives. The corpus has none of them, so nothing is remembered."""
