"""The scores as a module of `evaluate`: from a local path, without the network, the same numbers."""

import json
import os
import subprocess
import sys

import evaluate
import pytest

from admin_nmt.metrics.evaluate_module import MODULE, NAMES
from admin_nmt.metrics.scores import corpus_scores, meteor, untested_scores

REFERENCES = ["Ein Mann mit Hut.", "Zwei Hunde laufen über die Wiese.", "„Kommst du um 12:30 Uhr?“"]
HYPOTHESES = ["ein Mann mit einem Hut.", "Zwei Hunde rennen über die Wiesen.", ""]
TEXTS = {"predictions": HYPOTHESES, "references": REFERENCES}

LOAD_AND_COMPUTE = """
import json, socket, sys

def refuse(*args, **options):
    raise AssertionError("the network was asked for")

socket.socket.connect = socket.getaddrinfo = refuse
import evaluate
path, names, texts = json.load(sys.stdin)
scores = [evaluate.load(path, name).compute(**texts, language="de") for name in names]
combined = evaluate.combine([evaluate.load(path, name) for name in names]).compute(**texts, language="de")
print(json.dumps([scores, combined]))
"""


def all_scores(references):
    scores = corpus_scores(HYPOTHESES, references, "de") | meteor(HYPOTHESES, references, "de")
    return scores | untested_scores(HYPOTHESES, references, "de")


def load(name):
    return evaluate.load(MODULE, name, keep_in_memory=True)


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    """`evaluate` copies modules and texts into its cache: let that be a folder of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluate.config.HF_MODULES_CACHE", str(folder / "modules"))
        patch.setattr("evaluate.config.HF_METRICS_CACHE", str(folder / "metrics"))
        patch.syspath_prepend(folder / "modules")
        yield


def test_scores_load_without_the_network_and_combine(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOAD_AND_COMPUTE],
        input=json.dumps([MODULE, NAMES, TEXTS]),
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    scores, combined = json.loads(done.stdout.splitlines()[-1])
    merged = {name: value for result in scores for name, value in result.items()}
    assert merged == combined == all_scores(REFERENCES)
    for name, result in zip(NAMES, scores, strict=True):
        assert any(key.startswith(name) for key in result)


def test_several_references_come_as_a_list_for_each_prediction():
    several = [[line, line.upper()] for line in REFERENCES]
    expected = all_scores(several)
    for name in NAMES:
        scores = load(name).compute(predictions=HYPOTHESES, references=several, language="de")
        assert scores == {key: expected[key] for key in scores}
    assert expected["bleu_signature"].startswith("nrefs:2|")
