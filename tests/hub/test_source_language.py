"""What a folder tells about the language that its model reads."""

import json

import pytest

from admin_nmt.hub.source_language import source_language, target_language

CARD = "---\nlanguage:\n- de\n- en\ntags:\n- {tag}\n---\n# A model\n"


@pytest.mark.parametrize(
    ("name", "content", "language"),
    [
        ("README.md", CARD.format(tag="admin_nmt"), "de"),
        ("README.md", CARD.format(tag="marian"), None),
        ("README.md", "---\nlanguage: en\ntags:\n- admin_nmt\n---\n", None),
        ("README.md", "---\nlanguage: []\ntags:\n- admin_nmt\n---\n", None),
        ("README.md", "---\n[\n---\n", None),
        ("README.md", "---\n- a\n---\n", None),
        ("README.md", "---\nlanguage: [gibberish]\ntags: [admin_nmt]\n---\n", None),
        ("README.md", "no facts", None),
        ("tokenizer_config.json", json.dumps({"source_lang": "fr", "target_lang": "en"}), "fr"),
        ("tokenizer_config.json", json.dumps({"moses": {"source": "zh", "target": "en"}}), "zh"),
        ("tokenizer_config.json", json.dumps({"moses": None}), None),
        ("tokenizer_config.json", json.dumps({"moses": "de", "source_lang": 3}), None),
        ("tokenizer_config.json", "[]", None),
        ("tokenizer_config.json", "{", None),
        ("other", "", None),
    ],
)
def test_only_what_is_certain_is_told(tmp_path, name, content, language):
    (tmp_path / name).write_text(content)
    assert source_language(tmp_path) == language


@pytest.mark.parametrize(
    ("name", "content", "language"),
    [
        ("README.md", CARD.format(tag="admin_nmt"), "en"),
        ("README.md", "---\nlanguage: [de]\ntags: [admin_nmt]\n---\n", None),
        ("tokenizer_config.json", json.dumps({"source_lang": "fr", "target_lang": "en"}), "en"),
        ("tokenizer_config.json", json.dumps({"moses": {"source": "zh", "target": "fr"}}), "fr"),
        ("other", "", None),
    ],
)
def test_the_target_likewise(tmp_path, name, content, language):
    (tmp_path / name).write_text(content)
    assert target_language(tmp_path) == language
