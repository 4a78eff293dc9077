"""BLEU as the papers' own scripts give it: numbers and tokens that their Perl scripts printed for these lines."""

import pytest

from admin_nmt.metrics.published_bleu import PUBLISHED, published_bleu

REFERENCES = [
    "Der „Baden-Württemberg-Express“ fährt um 9-10 Uhr… oder nicht!",
    "C’est-à-dire: „Es geht“ – 3,5 % mehr & weniger.",
    "Die A-B-C-Straße, Nr. 12a, z. B. heute.",
    "Ein-Euro-Job？ Ja（nein）！",
    "Das ist ein gut-gemeinter, aber kurzer Satz.",
]
HYPOTHESES = [
    "Der „Baden-Württemberg-Zug“ fährt um 9-10 Uhr… oder nicht!",
    "C’est-à-dire: „Es geht“ - 3,5 % mehr & wenig.",
    "Die A-B-C-Straße, Nr. 12a, z. B. morgen.",
    "Ein-Euro-Job? Ja (nein)!",
    "Das ist ein gut gemeinter, aber kurzer Satz.",
]
# sed "s/’/'/g", tokenizer.perl -a -l de
LIU = [
    "Der „ Baden @-@ Württemberg @-@ Express “ fährt um 9 @-@ 10 Uhr … oder nicht !",
    "C &apos; est @-@ à @-@ dire : „ Es geht “ – 3,5 % mehr &amp; weniger .",
    "Die A @-@ B @-@ C @-@ Straße , Nr. 12a , z. B. heute .",
    "Ein @-@ Euro @-@ Job ？ Ja （ nein ） ！",
    "Das ist ein gut @-@ gemeinter , aber kurzer Satz .",
]
# replace-unicode-punctuation.perl, tokenizer.perl -l de, perl -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g'
WANG = [
    "Der „ Baden ##AT##-##AT## Württemberg ##AT##-##AT## Express &quot; "
    "fährt um 9 ##AT##-##AT## 10 Uhr ... oder nicht !",
    "C &apos; est ##AT##-##AT## à ##AT##-##AT## dire : „ Es geht &quot; – 3,5 % mehr &amp; weniger .",
    "Die A ##AT##-##AT## B-C ##AT##-##AT## Straße , Nr. 12a , z. B. heute .",
    "Ein ##AT##-##AT## Euro ##AT##-##AT## Job ? Ja ( nein ) !",
    "Das ist ein gut ##AT##-##AT## gemeinter , aber kurzer Satz .",
]


@pytest.mark.parametrize(("paper", "tokens"), [("liu2020", LIU), ("wang2019", WANG)])
def test_tokens_are_those_of_the_authors_scripts(paper, tokens):
    assert PUBLISHED[paper](REFERENCES, "de") == tokens


@pytest.mark.parametrize(("paper", "bleu"), [("liu2020", "74.38"), ("wang2019", "82.34")])
def test_bleu_is_what_the_authors_scripts_print(paper, bleu):
    """multi-bleu.perl on these tokens, to two digits."""
    assert f"{published_bleu(HYPOTHESES, REFERENCES, 'de', paper):.2f}" == bleu
    assert published_bleu(REFERENCES, REFERENCES, "de", paper) == pytest.approx(100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (["a"], ["a"], "de", "vaswani2017"),
            "'vaswani2017' is no paper whose BLEU is known; choose from liu2020, wang",
        ),
        ((["a"], ["a"], "zh", "liu2020"), "language 'zh' is written without spaces"),
        ((["a"], ["a"], "th", "wang2019"), "language 'th' is written without spaces"),
        ((["a"], ["a", "b"], "de", "liu2020"), "1 hypotheses against 2 references"),
    ],
)
def test_what_cannot_be_scored_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        published_bleu(*arguments)
