"""The models behind the page: limits, what is loaded once, and visitors who come at the same time."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Barrier

import pytest
from toy import random_texts

from admin_nmt import Translator
from admin_nmt.decoding.options import SearchOptions
from admin_nmt.decoding.usual_scores import UsualScores
from admin_nmt.demo import session
from admin_nmt.demo.session import ENGINES, ServedModel, sentences_of


def options(beams: int = 5, penalty: float = 1.0) -> SearchOptions:
    return SearchOptions(num_beams=beams, nbest=beams, length_penalty=penalty)


@pytest.mark.parametrize(("beams", "penalty"), [(3, 0.5), (1, 2.0)])
def test_an_answer_is_what_the_translator_says(served, model_folder, beams, penalty):
    lines = random_texts(3)
    answer = served.translate(lines, options(beams, penalty))
    translator = Translator.from_pretrained(model_folder)
    assert answer.text.split("\n") == translator.translate(lines, num_beams=beams, length_penalty=penalty)
    assert answer.tokens == sum(len(line[0].tokens) + 1 for line in answer.translations) and answer.seconds > 0
    for line in answer.translations:
        assert 1 <= len(line) <= beams
        assert [one.score for one in line] == sorted((one.score for one in line), reverse=True)


def test_attention_is_that_of_the_layer_if_it_can_be_read(served, monkeypatch):
    def weights(layer: int | None) -> list[list[float]]:
        (line,) = served.translate(random_texts(1), options(), layer=layer).translations
        assert line[0].attention.shape == (len(line[0].tokens), len(line[0].source_tokens))
        return line[0].attention.tolist()

    assert weights(1) != weights(2) == weights(99) == weights(None)
    expected = served.translate(random_texts(1), options()).text
    monkeypatch.setattr(session, "SWITCHABLE_MODELS", set())
    answer = served.translate(random_texts(1), options())
    assert answer.text == expected and answer.translations[0][0].attention is None


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "PyTorch"])
def test_ctranslate2_answers_too(served, model_folder, engine):
    pytest.importorskip("ctranslate2")
    lines = random_texts(3)
    answer = served.translate(lines, options(), engine)
    assert answer.translations[0][0].attention is None
    translator = Translator.from_pretrained(model_folder, **asdict(ENGINES[engine]))
    assert answer.text.split("\n") == translator.translate(lines, num_beams=5, length_penalty=1.0)


def test_an_engine_is_loaded_once(served, monkeypatch):
    pytest.importorskip("ctranslate2")
    loaded, gate, load = [], Barrier(4), Translator.from_pretrained

    def counted(*args, **kwargs):
        loaded.append(kwargs)
        return load(*args, **kwargs)

    monkeypatch.setattr(session.Translator, "from_pretrained", counted)

    def ask(_: int) -> Translator:
        gate.wait()
        return served.translator("CTranslate2")

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(4)))
    assert len(loaded) == 1 and all(one is found[0] for one in found)


def test_sentences_unlike_the_validation_text_are_told(served, model_folder):
    (text,) = random_texts(1)
    assert not served.translate([text], options()).unusual
    for mean, expected in ((0.0, [1]), (-99.0, [])):
        UsualScores(sentences=99, mean=mean, deviation=0.0, low=mean).save(model_folder)
        assert ServedModel(model_folder).translate([text, ""], options()).unusual == expected


def test_what_is_refused(served, tmp_path):
    with pytest.raises(ValueError, match="Sentence 2"):
        served.translate([*random_texts(1), "balro " * 64], options())
    with pytest.raises(ValueError, match=r"config\.json"):
        ServedModel(tmp_path)


def test_sentences(served):
    assert sentences_of(" Bal do. \n\n\tMu.\r\n") == ["Bal do.", "", "Mu."]
    for text, said in ((" \n ", "Write"), ("a" * 1001, "1,001"), ("a\n" * 21, "21")):
        with pytest.raises(ValueError, match=said):
            sentences_of(text)
    answer = served.translate(["Bal do.", "", "Mu."], options())
    assert answer.text.split("\n")[1] == "" and len(answer.translations) == 3


def test_lines_are_split_by_the_rules_of_their_language():
    pytest.importorskip("sentencex")
    text = "Mr. Bal is here. Who is he?\n\nHe is Bal."
    assert sentences_of(text, "en") == ["Mr. Bal is here.", "Who is he?", "", "He is Bal."]
    with pytest.raises(ValueError, match="21"):
        sentences_of("He is Bal. " * 21, "en")
