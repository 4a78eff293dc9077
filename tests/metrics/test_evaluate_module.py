"""The scores as a module of `evaluate`: from a local path, without the network, the same numbers."""

import evaluate
import pytest

from admin_nmt.metrics.evaluate_module import MODULE, NAMES
from admin_nmt.metrics.scores import corpus_scores, meteor, untested_scores

REFERENCES = ["Ein Mann mit Hut.", "Zwei Hunde laufen über die Wiese.", "„Kommst du um 12:30 Uhr?“"]
HYPOTHESES = ["ein Mann mit einem Hut.", "Zwei Hunde rennen über die Wiesen.", ""]


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """The five metrics, loaded into a cache of the test's own on a machine without a network."""
    for name in ("socket.getaddrinfo", "socket.socket.connect"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("the network was asked for"))
    monkeypatch.setattr("evaluate.config.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("evaluate.config.HF_METRICS_CACHE", str(tmp_path / "metrics"))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    return [evaluate.load(MODULE, name, keep_in_memory=True) for name in NAMES]


def test_scores_are_ours_alone_and_combined(modules):
    """Compared for one reference, and for several as a list for each prediction."""
    for references in (REFERENCES, [[line, line.upper()] for line in REFERENCES]):
        expected = corpus_scores(HYPOTHESES, references, "de") | meteor(HYPOTHESES, references, "de")
        expected |= untested_scores(HYPOTHESES, references, "de")
        texts = {"predictions": HYPOTHESES, "references": references, "language": "de"}
        found = {name: module.compute(**texts) for name, module in zip(NAMES, modules, strict=True)}
        assert all(any(key.startswith(name) for key in scores) for name, scores in found.items())
        assert {key: score for scores in found.values() for key, score in scores.items()} == expected
        assert evaluate.combine(modules).compute(**texts) == expected
