"""Options of a search: limits, what goes together, and what a file of translations remembers of them."""

import json

import pytest

from admin_nmt.decoding.options import Engine, Sampling, SearchOptions


@pytest.mark.parametrize(
    ("kind", "options", "field"),
    [
        (SearchOptions, {"num_beams": 0}, "num_beams"),
        (SearchOptions, {"nbest": 0}, "nbest"),
        (SearchOptions, {"nbest": 3, "num_beams": 2}, "nbest"),
        (SearchOptions, {"length_penalty": float("nan")}, "length_penalty"),
        (SearchOptions, {"length_penalty": 1e5}, "length_penalty"),
        (SearchOptions, {"batch_tokens": 0}, "batch_tokens"),
        (SearchOptions, {"forbidden": ["a\udcff"]}, "forbidden"),
        (SearchOptions, {"forbidden": ["a", " "]}, "forbidden"),
        (SearchOptions, {"generate": {"num_beams": 2}}, "num_beams"),
        (Sampling, {"top_k": 0}, "top_k"),
        (Sampling, {"temperature": 1e-300}, "temperature"),
        (Sampling, {"temperature": float("inf")}, "temperature"),
        (Engine, {"backend": "onnx"}, "backend"),
        (Engine, {"compute_type": "int8"}, "compute_type"),
        (Engine, {"backend": "ctranslate2", "dtype": "float32"}, "dtype"),
    ],
)
def test_a_wrong_option_is_refused_at_construction(kind, options, field):
    with pytest.raises(ValueError, match=field):
        kind(**options)


def test_settings_are_what_translations_depend_on():
    assert SearchOptions(batch_tokens=9).settings() == {}
    assert Engine(dtype="float32").settings() == {"backend": "torch", "dtype": "float32"}
    options = SearchOptions(num_beams=2, forbidden=("a",), sampling=Sampling(3, top_k=2), generate={"top_p": 0.5})
    settings = options.settings()
    assert settings["sampling"] == {"seed": 3, "top_k": 2, "temperature": 1.0}
    assert json.loads(json.dumps(settings)) == settings
