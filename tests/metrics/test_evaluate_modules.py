"""The scores as modules of `evaluate`: from a local path, without the network, the same numbers."""

import json
import os
import subprocess
import sys

import pytest

evaluate = pytest.importorskip("evaluate")

from admin_nmt.metrics.evaluate_modules import NAMES, module_path  # noqa: E402
from admin_nmt.metrics.scores import all_scores  # noqa: E402

REFERENCES = ["Ein Mann mit Hut.", "Zwei Hunde laufen über die Wiese.", "„Kommst du um 12:30 Uhr?“"]
HYPOTHESES = ["ein Mann mit einem Hut.", "Zwei Hunde rennen über die Wiesen.", ""]
TEXTS = {"predictions": HYPOTHESES, "references": REFERENCES}

LOAD_AND_COMPUTE = """
import json, socket, sys

def refuse(*args, **options):
    raise AssertionError("the network was asked for")

socket.socket.connect = socket.getaddrinfo = refuse
import evaluate
paths, texts = json.load(sys.stdin)
scores = [evaluate.load(path).compute(**texts, language="de") for path in paths]
combined = evaluate.combine(paths).compute(**texts, language="de")
print(json.dumps([scores, combined]))
"""


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    """`evaluate` copies modules and texts into its cache: let that be a folder of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evaluate.config.HF_MODULES_CACHE", str(folder / "modules"))
        patch.setattr("evaluate.config.HF_METRICS_CACHE", str(folder / "metrics"))
        patch.syspath_prepend(folder / "modules")
        yield


def test_modules_load_without_the_network_and_combine(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOAD_AND_COMPUTE],
        input=json.dumps([[module_path(name) for name in NAMES], TEXTS]),
        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    scores, combined = json.loads(done.stdout.splitlines()[-1])
    merged = {name: value for result in scores for name, value in result.items()}
    assert merged == combined == all_scores(HYPOTHESES, REFERENCES, "de")
    for name, result in zip(NAMES, scores, strict=True):
        assert any(key.startswith(name) for key in result)


def test_sentences_may_come_one_by_one():
    module = evaluate.load(module_path("chrf"), keep_in_memory=True)
    for prediction, reference in zip(HYPOTHESES, REFERENCES, strict=True):
        module.add(prediction=prediction, reference=reference)
    assert module.compute()["chrf"] == all_scores(HYPOTHESES, REFERENCES, "de")["chrf"]


def test_language_chooses_the_tokeniser_of_bleu():
    module = evaluate.load(module_path("bleu"), keep_in_memory=True)
    assert (
        "|tok:zh|"
        in module.compute(predictions=["我喜欢读书。"], references=["我喜欢看书。"], language="zh")["bleu_signature"]
    )
    assert "|tok:13a|" in module.compute(**TEXTS)["bleu_signature"]


@pytest.mark.parametrize("name", ["meteor", "tokenized_bleu"])
def test_a_language_that_is_needed_is_asked_for(name):
    with pytest.raises(ValueError, match="need the target language: compute"):
        evaluate.load(module_path(name), keep_in_memory=True).compute(**TEXTS)


def test_unknown_name_is_refused():
    with pytest.raises(ValueError, match="no module 'rouge'; there are bleu, chrf"):
        module_path("rouge")


def test_several_references_come_as_a_list_for_each_prediction():
    several = [[line, line.upper()] for line in REFERENCES]
    for name in NAMES:
        module = evaluate.load(module_path(name), keep_in_memory=True)
        scores = module.compute(predictions=HYPOTHESES, references=several, language="de")
        expected = all_scores(HYPOTHESES, several, "de")
        assert scores == {key: expected[key] for key in scores}
    assert expected["bleu_signature"].startswith("nrefs:2|")
