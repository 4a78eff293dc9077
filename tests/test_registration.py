"""What importing the package loads, and that the Auto classes know its classes whatever is imported first."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from toy import toy_tokenizer
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

import admin_nmt
from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminModel, registration
from admin_nmt.data.tokenization.byte_bpe import save_tokenizers

HEAVY = {"torch", "transformers", "datasets", "pyarrow", "sacrebleu", "accelerate", "matplotlib", "sacremoses", "yaml"}
CHECK = """
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING
from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminModel
from admin_nmt.data.tokenization.fairseq_tokenizer import FairseqTokenizer
assert AutoConfig.for_model("admin").__class__ is AdminConfig
assert AutoModel._model_mapping[AdminConfig] is AdminModel
assert AutoModelForSeq2SeqLM._model_mapping[AdminConfig] is AdminForConditionalGeneration
assert TOKENIZER_MAPPING[AdminConfig] is FairseqTokenizer
"""


def python(program: str, *arguments: str) -> str:
    """What a program prints in a process of its own."""
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def command_line(*arguments: object) -> set[str]:
    """The modules that the command line loads."""
    command = [sys.executable, "-X", "importtime", "-m", "admin_nmt", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")}


def test_the_help_of_the_command_line_loads_nothing_heavy():
    loaded = command_line("--help")
    assert "admin_nmt.cli.app" in loaded and not HEAVY & loaded


def test_a_command_knows_our_classes(tiny_config, tmp_path):
    tokenizer = toy_tokenizer()
    AdminForConditionalGeneration(tiny_config(vocab_size=len(tokenizer))).save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer)
    assert "admin_nmt.model.modeling_admin" in command_line("model", "info", tmp_path)


def test_the_model_loads_nothing_for_training():
    """accelerate comes with transformers' own modeling code."""
    loaded = set(python("import sys; from admin_nmt import AdminForConditionalGeneration; print(*sys.modules)").split())
    assert HEAVY & loaded == {"torch", "transformers", "accelerate", "yaml"}
    assert "transformers.trainer" not in loaded


@pytest.mark.parametrize("first", ["import admin_nmt", "from transformers import AutoConfig; import admin_nmt"])
def test_auto_classes_know_ours_in_both_orders_of_imports(first):
    python(f"{first}\n{CHECK}")


OLD_RELEASE = """
import sys
sys.path.insert(0, sys.argv[1])
try:
    exec(sys.argv[2])
except ImportError as error:
    print(error)
"""


def test_a_release_that_is_too_old_is_refused_by_a_sentence(tmp_path):
    """As if pip had put it beside us later."""
    metadata = tmp_path / "transformers-5.9.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 5.9.0\n")
    said = python(OLD_RELEASE, str(tmp_path), "import admin_nmt")
    assert "transformers 5.9.0" in said and f"transformers>={registration.OLDEST_TRANSFORMERS},<6" in said


@pytest.mark.parametrize("found", [registration.OLDEST_TRANSFORMERS, "5.24.0.dev0", "6.0.0rc1", "10.1"])
def test_other_releases_are_not_refused(found, monkeypatch):
    monkeypatch.setattr(registration, "version", lambda name: found)
    registration.refuse_old_release()


def test_the_oldest_release_is_that_of_the_metadata():
    setup = (Path(__file__).parents[1] / "setup.cfg").read_text()
    assert f"    transformers>={registration.OLDEST_TRANSFORMERS},<6\n" in setup


def test_classes_are_found_by_name_and_by_configuration(tiny_config, tmp_path):
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


def test_public_names_are_annotated_as_they_are_loaded():
    """What type checkers read and what is imported name the same modules."""
    text = Path(admin_nmt.__file__).read_text()
    for name, module in admin_nmt._MODULES.items():
        (line,) = (line for line in text.splitlines() if line.startswith(f"    from .{module} import "))
        assert name in line.partition("import ")[2].split(", ")
    assert set(admin_nmt._MODULES) == set(admin_nmt.__all__)
