"""The page without a browser: what it shows, asked as Gradio's client asks it."""

import re
import sys

import httpx
import numpy as np
import pytest
from toy import error, random_texts

gradio = pytest.importorskip("gradio", reason="needs Gradio, the extra demo")

from gradio_client import Client  # noqa: E402

from admin_nmt.decoding.options import SearchOptions  # noqa: E402
from admin_nmt.decoding.translator import Translation  # noqa: E402
from admin_nmt.demo import page as page_module  # noqa: E402
from admin_nmt.demo.page import DIFFERENT, _translate, alternatives, build_page, heat_map, serve, summary  # noqa: E402
from admin_nmt.demo.session import Answer  # noqa: E402

PLAIN = (5, 1.0, "PyTorch", 2)  # beam size, length penalty, backend, layer


def translation(text: str, score: float = -0.5) -> Translation:
    return Translation(text, score, 3 * score, re.findall(r" ?\S+", text), ["Bal", " do"], None)


@pytest.fixture
def toasts(monkeypatch) -> list[str]:
    """The messages that pop up in the page."""
    shown: list[str] = []
    monkeypatch.setattr(page_module.gr, "Warning", lambda message, title: shown.append(message))
    return shown


def test_a_client_gets_the_translation(served):
    page = build_page([served])
    assert not page.analytics_enabled and page._queue.max_size
    address = serve(page, "127.0.0.1")
    try:
        assert address.startswith("http://127.0.0.1:") and page.share_url is None
        client = Client(address, verbose=False, analytics_enabled=False)
        (text,) = random_texts(1)
        found, below = client.predict(text, 3, 0.5, "PyTorch", 1, api_name="/translate")
        options = SearchOptions(num_beams=3, nbest=3, length_penalty=0.5)
        assert found == served.translate([text], options).text and "tokens a second" in below
        url = f"{address}gradio_api/"
        for path, headers in (("info", {"Host": "evil.example"}), ("info", {"Origin": "http://evil.example"})):
            assert httpx.get(url + path, headers=headers).status_code == 403
        assert httpx.get(f"{url}info", headers={"Origin": "http://localhost:7860"}).status_code == 200
        assert httpx.post(f"{url}upload", files={"files": ("x.txt", b"x")}).status_code == 403
        for wrong in ((99, 0.5, "PyTorch", 1), (3, 0.5, "x", 1), (3, 0.5, "PyTorch", 0)):
            with pytest.raises(Exception, match=r"99|greater|maximum|minimum|choices"):
                client.predict(text, *wrong, api_name="/translate")
    finally:
        page.close(verbose=False)


@pytest.mark.parametrize("text", [None, "a" * 2000])
def test_a_text_that_is_refused_gets_a_message(served, toasts, text):
    assert _translate([served], text, *PLAIN) == ["", "", None] and len(toasts) == 1


def test_an_error_of_one_model_is_said_below_it_and_a_bug_is_no_message(served, monkeypatch):
    def fail(engine: str) -> None:
        raise problem

    monkeypatch.setattr(served, "translator", fail)
    problem: Exception = ValueError("cannot run in PyTorch")
    found, below, answer = _translate([served], "Bal.", *PLAIN)
    assert not found and answer is None and "cannot run in PyTorch" in below
    problem = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        _translate([served], "Bal.", *PLAIN)


def test_alternatives_mark_the_words_that_the_best_has_not():
    parts = alternatives([translation("Do mu re", -0.25), translation("Do ki re bal", -1.5)])
    best = ["−0.25", "−0.75", "Do mu re"]
    assert [text for text, _ in parts] == [*best, "\n", "−1.50", "−4.50", "Do", "ki", "re", "bal"]
    assert [text for text, label in parts if label == DIFFERENT] == ["ki", "bal"]
    assert alternatives([translation("Do mu re"), translation("Do re")])[-1] == ("Do re", None)


def test_a_heat_map_has_a_cell_for_each_weight():
    shown = heat_map(translation("Do mu re"), np.array([[0.0, 1.0], [0.25, 0.75], [0.5, 0.5]]))
    assert shown["headers"] == ["", "Bal", "do"]
    assert shown["data"] == [["Do", 0, 100], ["mu", 25, 75], ["re", 50, 50]]
    assert [["25%" in cell for cell in row] for row in shown["metadata"]["styling"]][1] == [False, True, False]


def test_the_summary_counts_tokens_and_names_unusual_sentences():
    answer = Answer(["Bal", ""], [[translation("Do mu re")], [translation("")]], 0.5, [2])
    assert "4 tokens, 8 tokens a second" in summary(answer) and "2 is" in summary(answer)
    assert "0 tokens a second" in summary(Answer([""], [[translation("")]], 0.0))


def test_without_gradio(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    monkeypatch.delitem(sys.modules, "admin_nmt.demo.page")
    assert 'pip install "admin_nmt[demo]"' in error("demo", "x")
