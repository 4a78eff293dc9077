"""The rule by which a training on a CPU gets its precision and its attention."""

import pytest

from admin_nmt.trainer import precision
from admin_nmt.trainer.precision import bfloat16_pays, cpu_attention


@pytest.mark.parametrize(
    ("fast", "width", "attention", "expected"),
    [
        (True, 512, "eager", True),
        (True, 128, "eager", True),
        (True, 64, "eager", False),
        (True, 128, "sdpa", False),
        (True, 256, "sdpa", True),
        (True, 256, None, True),
        (False, 512, "eager", False),
    ],
)
def test_bfloat16_pays_on_fast_processors_for_wide_models(monkeypatch, fast, width, attention, expected):
    monkeypatch.setattr(precision, "cpu_bfloat16_is_fast", lambda: fast)
    assert bfloat16_pays(width, attention) is expected


@pytest.mark.parametrize(("longest", "expected"), [(0, "eager"), (30, "eager"), (512, "eager"), (513, "sdpa")])
def test_attention_is_plain_at_the_length_of_sentences(longest, expected):
    assert cpu_attention(longest) == expected
