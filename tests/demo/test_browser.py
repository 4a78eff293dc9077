"""The page in Chromium, as visitors use it: type, translate, read the result; wide and narrow."""

from collections.abc import Callable, Iterator

import pytest
from toy import random_texts

pytest.importorskip("gradio", reason="needs Gradio, the extra demo")
pytest.importorskip("selenium", reason="needs selenium, which drives the browser")

from browser import PROGRAMS, Page, browser

from admin_nmt.decoding.options import SearchOptions
from admin_nmt.demo.page import build_page, serve
from admin_nmt.demo.session import ServedModel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(PROGRAMS), reason="needs chromium and chromedriver: apt-get install chromium-driver"),
]


@pytest.fixture(scope="module")
def driver() -> Iterator[object]:
    with browser() as chrome:
        yield chrome


@pytest.fixture
def visit(driver) -> Iterator[Callable[..., Page]]:
    """Serves a page of some models and opens it."""
    pages = []

    def open_page(*models: ServedModel, **window: object) -> Page:
        pages.append(build_page(models))
        return Page(driver, serve(pages[-1], "127.0.0.1"), **window)

    yield open_page
    for page in pages:
        page.close(verbose=False)


BEST_FIVE = SearchOptions(num_beams=5, nbest=5, length_penalty=1.0)


@pytest.mark.parametrize("width", [1920, 1280, 390])
def test_type_translate_read(visit, served, width):
    page = visit(served, ServedModel(served.folder), width=width)
    (text,) = random_texts(1)
    expected = served.translate([text], BEST_FIVE)
    assert page.write(text).press_translate().translations() == [expected.text] * 2
    page.wait(lambda: page.count(".heat-map td"))
    shown = page.text(".alternatives")[0]
    assert "score" in shown and all(word in shown for word in expected.text.split())
    for token in expected.translations[0][0].source_tokens[:3]:  # the table draws what is in sight
        assert token.strip() in page.text(".heat-map")[0]
    box = "const box = document.querySelector('main').getBoundingClientRect();"
    left, right = page.driver.execute_script(f"{box} return [box.left, document.body.clientWidth - box.right]")
    assert abs(left - right) <= 2  # in the middle
    assert not page.cut_off() and page.hosts() == {"127.0.0.1"}


def test_text_that_looks_like_code(visit, served):
    """Text of visitors and models is shown, and neither run nor filled in."""
    hostile = "<img src=x onerror=document.title='run'> ${7*7} {{7*7}}"
    page = visit(served)
    page.write(f"{hostile}\nBal do.").press_translate().translations()
    page.wait(lambda: page.text(".sentence"))
    assert hostile in page.text(".sentence")[0]
    assert "run" not in page.driver.title and not page.count("img[src=x]")


def test_an_example_is_one_click_away(visit, served):
    (text,) = random_texts(1)
    object.__setattr__(served.description.card, "examples", (text,))
    page = visit(served).press(".example")
    page.wait(lambda: page.source() == text)
    assert page.press_translate().translations() == [served.translate([text], BEST_FIVE).text]
