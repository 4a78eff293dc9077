"""What training/transformers_js writes: in onnxruntime the translations of the model, and in Node, where that is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from toy import random_texts, save_models, toy_tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from admin_nmt.weights.exporting import export_standard

SCRIPTS = Path(__file__).parents[1] / "training" / "transformers_js"
# The folder node_modules in which `npm install @huggingface/transformers` was done.
NODE_MODULES = os.environ.get("ADMIN_NMT_NODE_MODULES")
LONGEST = 20

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return random_texts(5, seed=3)


@pytest.fixture(scope="module")
def standard(tmp_path_factory) -> Path:
    """The folder of a stock model that translates differently for each source."""
    folder, tokenizer = tmp_path_factory.mktemp("models"), toy_tokenizer()
    model = save_models(folder, tokenizer)
    model.generation_config.max_length = LONGEST
    export_standard(model, tokenizer, folder / "short")
    return folder / "short"


@pytest.fixture(scope="module")
def exported(standard) -> Path:
    """The same for transformers.js."""
    pytest.importorskip("onnxscript")
    output = standard.parent / "web" / "model"
    command = [sys.executable, SCRIPTS / "export_onnx.py", standard, output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return output


def greedy(folder: Path, texts: list[str]) -> list[list[int]]:
    """Ids that the model generates in transformers."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return model.generate(**tokenizer(texts, return_tensors="pt", padding=True), num_beams=1).tolist()


def test_step_by_step_the_same_in_onnxruntime(exported, standard, texts):
    """As transformers.js runs it: one token at a time, with the keys and values of those before."""
    onnxruntime = pytest.importorskip("onnxruntime")
    encoder, decoder = (
        onnxruntime.InferenceSession(exported / "onnx" / f"{name}.onnx")
        for name in ("encoder_model", "decoder_model_merged")
    )
    batch = dict(AutoTokenizer.from_pretrained(exported)(texts, return_tensors="np", padding=True))
    (states,) = encoder.run(None, batch)
    fixed = {"encoder_hidden_states": states, "encoder_attention_mask": batch["attention_mask"]}
    given = [one for one in decoder.get_inputs() if one.name.startswith("past_key_values.")]
    assert all(one.shape[0] == "batch_size" and one.shape[2] == "past" for one in given)
    past = {one.name: np.zeros((len(texts), one.shape[1], 0, one.shape[3]), np.float32) for one in given}
    assert [one.name for one in decoder.get_outputs()[1:]] == [
        name.replace("past_key_values", "present") for name in past
    ]
    expected = np.array(greedy(standard, texts))
    pad = AutoTokenizer.from_pretrained(exported).pad_token_id
    going = np.ones(len(texts), bool)
    for position in range(expected.shape[1] - 1):
        logits, *new = decoder.run(None, {"input_ids": expected[:, position : position + 1], **fixed, **past})
        logits[..., pad] = -np.inf
        best = logits[:, -1].argmax(-1)
        assert (best == expected[:, position + 1])[going].all()
        going &= best != 0
        past = dict(zip(past, new, strict=True))
    assert len({str(row) for row in expected.tolist()}) > 1


@pytest.mark.skipif(not (NODE_MODULES and shutil.which("node")), reason="needs Node and ADMIN_NMT_NODE_MODULES")
def test_the_same_translations_in_node(exported, standard, texts):
    shutil.copy(SCRIPTS / "translate.mjs", exported.parent)
    (exported.parent / "node_modules").symlink_to(NODE_MODULES)
    done = subprocess.run(
        ["node", "translate.mjs", exported.name],
        cwd=exported.parent,
        input="".join(f"{line}\n" for line in texts),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    tokenizer = AutoTokenizer.from_pretrained(standard)
    expected = tokenizer.batch_decode(greedy(standard, texts), skip_special_tokens=True)
    assert done.stdout.split("\n")[:-1] == expected
