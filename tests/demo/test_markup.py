"""The HTML of the page: escaped, complete, and as many cells as there are weights."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from admin_nmt.decoding.translator import Translation
from admin_nmt.demo import markup
from admin_nmt.demo.session import Answer

HOSTILE = "<script>alert(1)</script> ${7*7} {{7*7}} `x` \" ' &"
WITHOUT_END = {"br", "img", "input"}


class Reader(HTMLParser):
    """Collects tags and text; refuses tags that are closed in another order than they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in WITHOUT_END:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def translation(
    text: str, score: float = -0.5, attention: np.ndarray | None = None, source: str = "Bal do"
) -> Translation:
    tokens, source_tokens = re.findall(r" ?\S+", text), re.findall(r" ?\S+", source)
    return Translation(text, score, 3 * score, tokens, source_tokens, attention)


def test_text_stays_text():
    weights = np.full((len(HOSTILE.split()), len(HOSTILE.split())), 0.5)
    answer = Answer([[translation(HOSTILE, -0.5, weights, HOSTILE), translation(f"{HOSTILE} too")]] * 2, 1.0)
    shown = markup.details(answer, [HOSTILE, HOSTILE]) + markup.notice(HOSTILE) + markup.heading(HOSTILE, HOSTILE)
    assert not set("${}`") & set(re.sub(r'style="[^"]*"', "", shown))
    page = Reader(shown)
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.words.count(HOSTILE) == 2 + 3 + 2  # the best of both lines, message and headings, and the lines


def test_the_table_has_each_translation_with_its_scores():
    answer = Answer([[translation("Do mu re", -0.25), translation("Do ki re bal", -1.5)]], 0.5)
    page = Reader(markup.details(answer, ["Bal do"]))
    text = " ".join(" ".join(page.words).split())
    assert "Do mu re −0.25 −0.75" in text and "Do ki re bal −1.50 −4.50" in text
    assert [tag for tag, _ in page.tags].count("mark") == 2  # ki, bal


def test_speed():
    answer = Answer([[translation("Do mu re")], [translation("")]], 0.5)
    assert Reader(markup.speed(answer)).words == ["0.50 s", "4 tokens", "8 tokens a second"]
    assert Reader(markup.speed(Answer([[translation("")]], 0.0))).words[1:] == ["0 tokens", "0 tokens a second"]


def test_a_warning_names_the_sentences():
    def said(*unusual: bool) -> str:
        answer = Answer([[translation("Do")]] * len(unusual), 1.0, unusual)
        return "".join(Reader(markup.warning(answer, ["Bal"] * len(unusual))).words)

    assert said(False) == said() == ""
    assert said(True).startswith("This sentence is probably")
    assert said(False, True).startswith("Sentence 2 is") and said(True, False, True).startswith("Sentences 1, 3 are")


def test_a_heat_map_has_a_cell_for_each_weight():
    weights = np.array([[0.0, 1.0], [0.25, 0.75], [0.5, 0.5]])
    page = Reader(markup.details(Answer([[translation("Do mu re", attention=weights)]], 1.0), ["Bal do"]))
    cells = [fields for tag, fields in page.tags if tag == "td" and "style" in fields]
    assert [float(fields["style"].removeprefix("--w:")) for fields in cells] == weights.flatten().tolist()
    assert cells[3]["title"] == "mu ← do: 75%"


def test_axes_tell_where_words_begin():
    byte_level = markup._labels([" Lis", "bon", ",", " ", "ö"])
    assert byte_level == ["Lis", "·bon", "·,", "␣", "ö"]
    assert markup._labels(["Lis", "bon ", "öff", "net "]) == ["Lis", "·bon", "öff", "·net"]


@pytest.mark.parametrize(("attention", "said"), [(None, ""), (np.zeros((3, 61)), "up to 60 tokens")])
def test_where_there_is_nothing_to_draw(attention, said):
    shown = markup.details(Answer([[translation("Do mu re", attention=attention)]], 1.0), ["Bal do"])
    assert said in shown and "nmt-heat" not in shown


def test_of_several_lines_the_first_is_unfolded():
    answer = Answer([[translation("Do")], [translation("")], [translation("Mu")]], 1.0)
    lines = [fields for tag, fields in Reader(markup.details(answer, ["Bal", "", "Ki"])).tags if tag == "details"]
    assert ["open" in fields for fields in lines] == [True, False]
