"""What the page says of a model before it translates."""

import json

import pytest

from admin_nmt.demo.model_facts import model_facts
from admin_nmt.metrics.languages import is_written_leftward


def test_facts_of_a_card(make_run):
    run = make_run()
    example = json.loads((run / "results.json").read_text())["recipe"]["card"]["example"]
    for folder in (run / "standard", run / "final"):
        facts = model_facts(folder)
        assert facts.languages == ("en", "de") and facts.title == "English to German"
        assert facts.examples == (example,) and facts.license == "cc-by-4.0"
        assert facts.size.startswith("3-2 layers, ") and facts.decoder_layers == 2


def test_without_a_card_or_with_another(make_run):
    folder = make_run() / "standard"
    (folder / "README.md").write_text("---\nlanguage: [en, de]\n---\nsentences = []\n")
    assert model_facts(folder).title is None  # elsewhere the languages stand in any order
    (folder / "README.md").unlink()
    assert model_facts(folder).examples == () and model_facts(folder).title is None


def test_a_card_that_cannot_be_read(make_run):
    folder = make_run() / "standard"
    (folder / "README.md").write_text("---\nlanguage: [en\n---\n")
    with pytest.raises(ValueError, match=r"README\.md: its header"):
        model_facts(folder)


def test_direction_of_writing():
    assert [is_written_leftward(code) for code in ("ar", "he", "de", "zh", "xx")] == [True, True, False, False, False]
