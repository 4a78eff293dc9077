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

# Imports what takes long once, and then tries each order of imports in a child of its own.
ORDERS = """
import os, sys, accelerate, sacremoses, torch._dynamo, torch.distributed.tensor
CHECK = '''
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING
from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminModel
from admin_nmt.data.tokenization.fairseq_tokenizer import FairseqTokenizer
assert AutoConfig.for_model("admin").__class__ is AdminConfig
assert AutoModel._model_mapping[AdminConfig] is AdminModel
assert AutoModelForSeq2SeqLM._model_mapping[AdminConfig] is AdminForConditionalGeneration
assert TOKENIZER_MAPPING[AdminConfig] is FairseqTokenizer
assert not any(type(finder).__module__.startswith("admin_nmt") for finder in sys.meta_path)  # nobody is waited for
'''
for order in sys.argv[1:]:
    if not os.fork():
        try:
            exec(order + CHECK)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"failed: {order}")
"""


def python(program: str, *arguments: str) -> str:
    """What a program prints in a process of its own."""
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_importing_the_package_loads_nothing_heavy():
    loaded = python("import sys, admin_nmt; dir(admin_nmt); print(*sys.modules)").split()
    assert not HEAVY & set(loaded)
    assert len([name for name in loaded if name.startswith("admin_nmt.")]) == 1


def test_the_model_loads_nothing_for_training():
    """accelerate comes with transformers' own modeling code."""
    loaded = set(python("import sys; from admin_nmt import AdminForConditionalGeneration; print(*sys.modules)").split())
    assert HEAVY & loaded == {"torch", "transformers", "accelerate", "yaml"}
    assert "transformers.trainer" not in loaded


def test_auto_classes_know_ours_in_every_order_of_imports():
    orders = [
        "import transformers.models.auto.modeling_auto, transformers.models.auto.tokenization_auto, admin_nmt",
        "from transformers import AutoConfig; import admin_nmt",
        "import admin_nmt; from transformers import AutoConfig; assert AutoConfig.for_model('admin')",
        "import admin_nmt, transformers.modeling_layers",  # which our model imports, and which imports AutoModel
        "import admin_nmt.model.modeling_admin",
    ]
    python(ORDERS, *orders)


def test_what_failed_to_register_is_tried_again(monkeypatch):
    done = []

    def register(module):
        done.append(module.__name__)
        if len(done) == 1:
            raise RuntimeError("not yet")

    waiting = {"json": register, "a_module_that_is_not_loaded": register}
    monkeypatch.setattr(registration, "WAITING", waiting)
    with pytest.raises(RuntimeError, match="not yet"):
        registration.register_loaded()
    assert "json" in waiting
    registration.register_loaded()
    registration.register_loaded()
    assert done == ["json", "json"] and list(waiting) == ["a_module_that_is_not_loaded"]


OLD_RELEASE = """
import sys
sys.path.insert(0, sys.argv[1])
try:
    exec(sys.argv[2])
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "program",
    [
        "import admin_nmt; from transformers import AutoModelForSeq2SeqLM",
        "import transformers, admin_nmt",
        "from admin_nmt import AdminConfig",
        "import admin_nmt.decoding.translator",
        "from admin_nmt.trainer.admin_trainer import AdminTrainer",
    ],
)
def test_a_release_that_is_too_old_is_refused_by_a_sentence(program, tmp_path):
    """As if pip had put it beside us later."""
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text("__version__ = '5.9.0'\n")
    metadata = tmp_path / "transformers-5.9.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 5.9.0\n")
    oldest = registration.OLDEST_TRANSFORMERS
    assert python(OLD_RELEASE, str(tmp_path), program) == (
        f"transformers 5.9.0 is too old for admin_nmt, which needs {oldest} or newer: "
        f"pip install --upgrade 'transformers>={oldest},<6'\n"
    )


@pytest.mark.parametrize("found", [registration.OLDEST_TRANSFORMERS, "5.24.0.dev0", "6.0.0rc1", "10.1"])
def test_other_releases_are_not_refused(found):
    registration.refuse_old_release(found)


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
