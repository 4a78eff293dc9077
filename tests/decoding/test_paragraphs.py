"""Paragraphs are cut between their sentences, lose nothing, and come back as one line each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin_nmt.decoding.paragraphs import split_sentences, translate_paragraphs

# A bar stands where a sentence ends.
PARAGRAPHS = [
    ("en", "Dr. Smith met Mr. Jones on 3 Jan. 2024 at 5 p.m. in Washington. |They talked about the U.S. economy."),
    ("en", "The parcel weighs 3.5 kg and costs $4.99. |Is that too much? |No!"),
    ("en", "“Where are you going?” she asked. |“Home,” he said."),
    ("en", "See https://example.com/a.b?c=d.e for details. |Write to a.b@example.org. |Thanks."),
    ("en", "J. R. R. Tolkien wrote it.  |Really?! |Yes.\t|The company (Acme Inc.) was sold for 1.5 bn. euros."),
    ("en", "1. Open the file. |2. Save it."),
    ("en", "Use ASP.NET and Microsoft.AspNetCore.All now. |Wait... what?"),
    ("de", "Das gilt z. B. für Dr. Müller. |Er kommt am 3. Oktober 2024 um 17.30 Uhr."),
    ("de", "„Ich komme nicht. Ich bin krank.“ |Dann ging er."),
    ("de", "Siehe Abs. 2 Nr. 3 u. a. im BGB. |Vgl. auch S. 12 ff. des Buches."),
    ("de", "Der 2. Weltkrieg endete 1945. |Im 19. Jahrhundert war es anders. |Ludwig XIV. war König."),
    ("fr", "Hier, M. Dupont et M. Durand sont venus. |Le colis pèse 3,5 kg ! |C'est cher, n'est-ce pas ?"),
    ("fr", "« Où vas-tu ? » demanda-t-elle. |« À la maison. »"),
    ("ru", "А. С. Пушкин родился в 1799 г. в Москве. |Это было давно."),
    ("zh", "今天天气很好。|我们去公园吧！|价格是3.5元。|你想去吗？"),
    ("ja", "今日は天気がいいです。|公園に行きましょう！|行きますか？"),
    ("hi", "यह एक वाक्य है। |यह दूसरा वाक्य है। |क्या?"),
    ("en", "A heading\n|First line.\r\n|\n|Next paragraph. |Its end"),
    ("en", "He is 12. |She is 13. |I am J.\u00a0R. and you are M.\u3000B."),
]


class Shouter:
    """Stands for a translator; writes in capitals."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def translate(self, sentences: list[str], *, progress: bool) -> list[str]:
        self.asked += sentences
        return [sentence.upper() for sentence in sentences]


class Dictionary:
    """Stands for a translator of a few sentences."""

    def __init__(self, **entries: str) -> None:
        self.entries = entries

    def translate(self, sentences: list[str], *, progress: bool) -> list[str]:
        return [self.entries[sentence] for sentence in sentences]


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
    texts = ["  One. Two!  Three?\tFour.\n\n  Five. ", "", " \t", "Six."]
    translator = Shouter()
    translations = translate_paragraphs(translator, texts, "en")
    assert translations == ["ONE. TWO!  THREE?\tFOUR.\n\n  FIVE.", "", "", "SIX."]
    assert [sentence for sentence in translator.asked if sentence] == [
        "One.",
        "Two!",
        "Three?",
        "Four.",
        "Five.",
        "Six.",
    ]


def test_the_space_behind_a_full_stop_is_that_of_the_target():
    to_english = Dictionary(**{"今天。": "Today.", "明天。": "Tomorrow."})
    assert translate_paragraphs(to_english, ["今天。明天。"], "zh") == ["Today. Tomorrow."]
    to_chinese = Dictionary(**{"Today.": "今天。", "Tomorrow.": "明天。"})
    assert translate_paragraphs(to_chinese, ["Today. Tomorrow."], "en") == ["今天。明天。"]


@pytest.mark.parametrize(
    ("texts", "kind", "message"),
    [
        ("One. Two.", TypeError, "is a single string"),
        (["One.", None], TypeError, "sentence 2 is None"),
        (["One. \ud83d"], ValueError, "half a surrogate pair"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(texts, kind, message):
    with pytest.raises(kind, match=message):
        translate_paragraphs(Shouter(), texts, "en")
