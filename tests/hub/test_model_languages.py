"""What a folder tells about the languages that its model reads and writes."""

import json

import pytest

from admin_nmt.hub.model_info import model_languages
from admin_nmt.metrics.languages import is_written_leftward, language_name

CARD = "---\nlanguage:\n- de\n- en\ntags:\n- {tag}\n---\n# A model\n"
NONE = (None, None)


@pytest.mark.parametrize(
    ("name", "content", "languages"),
    [
        ("README.md", CARD.format(tag="admin_nmt"), ("de", "en")),
        ("README.md", CARD.format(tag="marian"), NONE),
        ("README.md", "---\nlanguage: [en, de]\ntags: 3\n---\n", NONE),
        ("README.md", "---\n[\n---\n", NONE),
        ("README.md", "---\nlanguage: [gibberish, de]\ntags: [admin_nmt]\n---\n", (None, "de")),
        ("tokenizer_config.json", json.dumps({"source_lang": "fr", "target_lang": "en"}), ("fr", "en")),
        ("tokenizer_config.json", json.dumps({"moses": {"source": "zh", "target": "en"}}), ("zh", "en")),
        ("tokenizer_config.json", json.dumps({"moses": "de", "source_lang": 3}), NONE),
        ("tokenizer_config.json", "{", NONE),
    ],
)
def test_only_what_is_certain_is_told(tmp_path, name, content, languages):
    (tmp_path / name).write_text(content)
    assert model_languages(tmp_path) == languages


def test_names_of_languages():
    assert [language_name(code) for code in ("fr", "pt-BR", "xx")] == ["French", "Portuguese (BR)", "xx"]
    assert [is_written_leftward(code) for code in ("ar", "he", "de", "zh", "xx")] == [True, True, False, False, False]
