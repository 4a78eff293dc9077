"""Paragraphs are cut between their sentences, lose nothing, and come back as one line each."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin_nmt.decoding.paragraphs import split_sentences, translate_paragraphs

# A bar stands where a sentence ends.
PARAGRAPHS = [
    ("en", "Dr. Smith met Mr. Jones on 3 Jan. 2024 at 5 p.m. in Washington. |They talked about the U.S. economy."),
    ("en", "J. R. R. Tolkien wrote it.  |Really?! |Yes.\t|The company (Acme Inc.) was sold for 1.5 bn. euros."),
    ("en", "1. Open the file. |2. Save it."),
    ("de", "Das gilt z. B. für Dr. Müller. |Er kommt am 3. Oktober 2024 um 17.30 Uhr."),
    ("de", "Der 2. Weltkrieg endete 1945. |Im 19. Jahrhundert war es anders. |Ludwig XIV. war König."),
    ("fr", "Hier, M. Dupont et M. Durand sont venus. |Le colis pèse 3,5 kg ! |C'est cher, n'est-ce pas ?"),
    ("ru", "А. С. Пушкин родился в 1799 г. в Москве. |Это было давно."),
    ("zh", "今天天气很好。|我们去公园吧！|价格是3.5元。|你想去吗？"),
    ("en", "A heading\n|First line.\r\n|\n|Next paragraph. |Its end"),
    ("en", "He is 12. |She is 13. |I am J.\u00a0R. and you are M.\u3000B."),
]


class Translated:
    """Stands for a translator."""

    def __init__(self, translation: Callable[[str], str]) -> None:
        self.translation, self.asked = translation, []

    def translate(self, sentences: list[str], *, progress: bool) -> list[str]:
        self.asked += sentences
        return list(map(self.translation, sentences))


@pytest.mark.parametrize(("language", "marked"), PARAGRAPHS)
def test_sentences_are_those_of_a_reader(language, marked):
    assert split_sentences(marked.replace("|", ""), language) == marked.split("|")


WHITESPACE = " \t\n\r\u00a0\u2028\u3000"


@given(
    st.text(st.sampled_from("aBM1é。.!?…\"'“”()[]" + WHITESPACE) | st.characters(exclude_categories=["Cs"])),
    st.sampled_from(["en", "zh", "de", "fr", "?"]),
)
def test_joined_sentences_are_the_text(text, language):
    sentences = split_sentences(text, language)
    assert "".join(sentences) == text
    assert all(sentences)


def test_whitespace_between_sentences_stays():
    translator = Translated(lambda sentence: sentence.upper())
    texts = ["  One. Two!  Three?\tFour.\n\n  Five. ", "", " \t", "Six."]
    assert translate_paragraphs(translator, texts, "en") == ["ONE. TWO!  THREE?\tFOUR.\n\n  FIVE.", "", "", "SIX."]
    assert list(filter(None, translator.asked)) == ["One.", "Two!", "Three?", "Four.", "Five.", "Six."]


def test_the_space_behind_a_full_stop_is_that_of_the_target():
    english = {"今天。": "Today.", "明天。": "Tomorrow."}
    chinese = {value: key for key, value in english.items()}
    assert translate_paragraphs(Translated(english.get), ["今天。明天。"], "zh") == ["Today. Tomorrow."]
    assert translate_paragraphs(Translated(chinese.get), ["Today. Tomorrow."], "en") == ["今天。明天。"]
