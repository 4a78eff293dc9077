"""Facts that the page tells of a model before it translates."""

import json

import pytest

from admin_nmt.demo.description import describe_model


def test_facts_of_a_card(make_run):
    run = make_run()
    example = json.loads((run / "results.json").read_text())["recipe"]["card"]["example"]
    for folder in (run / "standard", run / "final"):
        found = describe_model(folder)
        assert found.card.languages == ("en", "de") and found.title == "English to German"
        assert found.card.examples == (example,) and found.card.license == "cc-by-4.0"
        assert found.size.startswith("3-2 layers, ") and found.decoder_layers == 2


def test_other_cards(make_run):
    folder = make_run() / "standard"
    card = folder / "README.md"
    card.write_text("---\nlanguage: [en, de]\n---\nsentences = []\n")
    assert describe_model(folder).title is None  # elsewhere the languages stand in any order
    card.write_text("---\nlanguage: [en\n---\n")
    with pytest.raises(ValueError, match=r"README\.md"):
        describe_model(folder)
    card.unlink()
    assert describe_model(folder).card.examples == () and describe_model(folder).title is None
