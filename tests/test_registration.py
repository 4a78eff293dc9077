"""What importing the package loads, and that the Auto classes know its classes whatever is imported first."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

import admin_nmt
from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminModel, registration

HEAVY = {"torch", "transformers", "datasets", "pyarrow", "sacrebleu", "accelerate", "matplotlib", "sacremoses", "yaml"}
CHECK = """
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING
from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminModel, registration
from admin_nmt.data.tokenization.fairseq_tokenizer import FairseqTokenizer
assert AutoConfig.for_model("admin").__class__ is AdminConfig
assert AutoModel._model_mapping[AdminConfig] is AdminModel
assert AutoModelForSeq2SeqLM._model_mapping[AdminConfig] is AdminForConditionalGeneration
assert TOKENIZER_MAPPING[AdminConfig] is FairseqTokenizer
"""


@pytest.mark.slow  # a process
def test_the_model_loads_nothing_for_training_and_auto_classes_know_it():
    """accelerate comes with transformers' own modeling code."""
    program = f"import sys; from admin_nmt import AdminForConditionalGeneration; print(*sys.modules)\n{CHECK}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert HEAVY & loaded == {"torch", "transformers", "accelerate", "yaml"}
    assert "transformers.trainer" not in loaded


def test_a_release_of_transformers_that_is_too_old_is_refused(monkeypatch):
    setup = (Path(__file__).parents[1] / "setup.cfg").read_text()
    assert f"    {registration.OLDEST_TRANSFORMERS},<6\n" in setup
    monkeypatch.setattr(registration, "OLDEST_TRANSFORMERS", "transformers>=99")
    with pytest.raises(ImportError, match="pip install --upgrade 'transformers>=99,<6'"):
        registration.register_auto_classes()


def test_classes_are_found_by_name_and_by_configuration(tiny_config, tmp_path):
    """Also where transformers was imported before, as it was in this process."""
    exec(CHECK, {})
    assert MODEL_MAPPING_NAMES["admin"] == "AdminModel"
    assert MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["admin"] == "AdminForConditionalGeneration"
    AdminForConditionalGeneration(tiny_config()).save_pretrained(tmp_path)
    assert type(AutoConfig.from_pretrained(tmp_path)) is AdminConfig
    assert type(AutoModel.from_pretrained(tmp_path)) is AdminModel
    assert type(AutoModelForSeq2SeqLM.from_pretrained(tmp_path)) is AdminForConditionalGeneration


def test_public_names():
    assert set(admin_nmt.__all__) <= set(dir(admin_nmt))
    for name in admin_nmt.__all__:
        value = getattr(admin_nmt, name)
        assert value.__name__ == name
        assert pickle.loads(pickle.dumps(value)) is value
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = admin_nmt.nonsense
