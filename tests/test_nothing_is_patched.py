"""Nothing of Python, torch or transformers is changed at run time: by an import, a training, a load or a search."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import builtins, importlib, importlib._bootstrap, importlib._bootstrap_external, inspect, sys
from pathlib import Path

import accelerate
import torch
import torch.nn.functional
import transformers.masking_utils
import transformers.modeling_utils
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationMixin, PreTrainedModel
from transformers import PreTrainedConfig, PreTrainedTokenizerFast, Seq2SeqTrainer, Trainer, TrainerCallback
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.marian import modeling_marian
from transformers.models.pegasus import modeling_pegasus

MODULES = [builtins, importlib, importlib._bootstrap, importlib._bootstrap_external, torch, torch.nn.functional]
MODULES += [torch.random, transformers.masking_utils, transformers.modeling_utils, modeling_marian, modeling_pegasus]
CLASSES = {accelerate.Accelerator, AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationMixin, PreTrainedModel}
CLASSES |= {PreTrainedConfig, PreTrainedTokenizerFast, Seq2SeqTrainer, Trainer, GradientCheckpointingLayer}
CLASSES |= {torch.nn.Module, torch.Tensor, torch.optim.Optimizer, torch.optim.AdamW, torch.nn.ModuleList}
CLASSES |= {torch.nn.Linear, torch.nn.Embedding, torch.nn.LayerNorm, torch.nn.Dropout}
for module in (modeling_marian, modeling_pegasus):
    CLASSES |= {kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__}


def attributes() -> dict:
    functions = {
        (module.__name__, name): value for module in MODULES for name, value in vars(module).items() if callable(value)
    }
    methods = {(kind.__qualname__, name): value for kind in CLASSES for name, value in vars(kind).items()}
    attention = {("attention", name): ALL_ATTENTION_FUNCTIONS[name] for name in ALL_ATTENTION_FUNCTIONS.valid_keys()}
    imports = {("sys", name): [*getattr(sys, name)] for name in ("meta_path", "path_hooks")}
    return functions | methods | attention | imports


BEFORE = attributes()


def check(moment: str) -> None:
    now = attributes()
    for place, value in BEFORE.items():
        same = now.get(place) == value if isinstance(value, list) else now.get(place) is value
        assert same or place[1].startswith("__"), f"{moment} changed {'.'.join(place)}"


def page_faults() -> int:
    "Of a tensor of 64 MB: few where malloc was told to keep what is freed."
    import resource

    def one() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(1 << 24)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    return min(one() for _ in range(5))


FAULTS = page_faults()
import admin_nmt

check("the import")
from toy import randomised, random_ids, random_texts, toy_tokenizer

from admin_nmt import AdminConfig, AdminForConditionalGeneration, AdminTrainer, AdminTrainingArguments, Translator
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.weights.exporting import export_standard

tokenizer, folder = toy_tokenizer(), Path(sys.argv[1])
sizes = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in
         {"layers": 2, "ffn_dim": 32, "attention_heads": 4}.items()}
model = randomised(AdminForConditionalGeneration(AdminConfig(vocab_size=len(tokenizer), d_model=16, **sizes)))


def modules() -> list:
    return [(name, type(module), {**vars(module)}) for name, module in model.named_modules()]


state = modules()
Translator(model, tokenizer).translations(random_texts(5), num_beams=3, nbest=2, alignment_layer=-1)
assert modules() == state, "a search changed a module"
model.save_pretrained(folder / "final")
save_tokenizers(folder / "final", tokenizer)
export_standard(model, tokenizer, folder / "standard")
for name in ("final", "standard"):
    for dtype in ("float32", "bfloat16"):
        Translator.from_pretrained(folder / name, dtype=dtype).translate(random_texts(5))
check("a load or a search")
assert page_faults() >= FAULTS / 2, "a load or a search told malloc to keep what is freed"


class Check(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        check("an update")


args = AdminTrainingArguments(str(folder / "run"), max_tokens=60, max_steps=2, use_cpu=True, save_strategy="no",
                              report_to="none", eval_strategy="steps", eval_steps=1, eval_bleu=False)
data = random_ids(12, vocabulary=len(tokenizer))
own = {name for _, module in model.named_modules() for name in vars(module)}
AdminTrainer(model, args, train_dataset=data, eval_dataset=data, callbacks=[Check()]).train()
check("a training")
left = {name for _, module in model.named_modules() for name in vars(module) if callable(vars(module)[name])} - own
assert not left, f"a training left {left} in a module"
print("nothing")
"""


def test_nothing_of_others_is_changed(tmp_path):
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert result.stdout.endswith("nothing\n"), result.stderr[-3000:]
