"""Libraries that people use with a model: PEFT's LoRA, ONNX, CTranslate2. Each on an unfolded and on a stock model.

The examples of the guide run as they stand there.
"""

import shutil
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from test_fine_tuning import FOLDER, example
from toy import invoke, random_texts, save_models, text_pairs, toy_tokenizer
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

from admin_nmt import AdminTrainer, AdminTrainingArguments
from admin_nmt.weights.exporting import standard_model
from admin_nmt.weights.folding import FoldingError, fold_omega

HERE = "run by tests/test_ecosystem.py"
PAIR = {"input_ids": torch.arange(2, 10)[None], "labels": torch.arange(3, 11)[None]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """Folders `final` and `standard` of one model whose ω are random vectors."""
    folder = tmp_path_factory.mktemp("models")
    save_models(folder, toy_tokenizer(), encoder_layers=2, decoder_layers=1, omega_profiled=True)
    return folder


@pytest.fixture(params=["final", "standard"])
def model_folder(request, folders, tmp_path, monkeypatch) -> Path:
    """One of the two, seen from an empty folder."""
    monkeypatch.chdir(tmp_path)
    return folders / request.param


def run(title: str, folder: Path, scope: dict) -> dict:
    """Run an example of the guide on a model; returns its variables."""
    exec(example(title).replace(FOLDER, f"folder = {str(folder)!r}"), scope)
    return scope


@torch.no_grad()
def logits(model: torch.nn.Module, folder: Path) -> torch.Tensor:
    """Logits [3, T, V] of toy pairs, without those of <pad>, which is the last token."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(random_texts(3, seed=5), return_tensors="pt", padding=True)
    return model.eval()(**inputs, decoder_input_ids=inputs["input_ids"].roll(1, 1)).logits[..., :-1]


def check_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal up to the rounding of another order of operations."""
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def with_adapter(folder: Path, **options) -> torch.nn.Module:
    peft = pytest.importorskip("peft")
    set_seed(1)
    lora = peft.LoraConfig(task_type="SEQ_2_SEQ_LM", r=4, target_modules="all-linear", **options)
    return peft.get_peft_model(AutoModelForSeq2SeqLM.from_pretrained(folder), lora)


def trained(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: x.detach().clone() for name, x in model.named_parameters() if x.requires_grad}


def test_lora_trains_merges_and_folds(model_folder):
    peft = pytest.importorskip("peft")
    scope = run(f"LoRA, {HERE}", model_folder, run("fine-tuning with AdminTrainer", model_folder, {}))
    base = AutoModelForSeq2SeqLM.from_pretrained(model_folder)
    merged = AutoModelForSeq2SeqLM.from_pretrained("runs/lora/merged")
    assert type(merged) is type(scope["merged"]) is type(base)
    expected = logits(merged, model_folder)
    assert (expected - logits(base, model_folder)).abs().max() > 1e-3  # 20 updates did something
    changed = {name for name, x in base.state_dict().items() if not torch.equal(x, merged.state_dict()[name])}
    linear = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2")
    assert changed == {name for name in base.state_dict() if name.endswith(tuple(f"{x}.weight" for x in linear))}
    check_same(logits(peft.PeftModel.from_pretrained(base, "runs/lora"), model_folder), expected)
    if model_folder.name == "final":
        for command in ("fold", "export"):
            invoke("model", command, "runs/lora/merged", "--output", command)
            check_same(logits(AutoModelForSeq2SeqLM.from_pretrained(command), model_folder), expected)


@pytest.mark.parametrize(
    ("options", "adapter"),
    [
        ({"target_modules": ["q_proj", "lm_head"], "init_lora_weights": False}, "lm_head.lora"),
        ({"target_modules": ["q_proj"], "trainable_token_indices": [5, 6]}, "trainable_tokens"),
    ],
)
def test_adapters_of_the_output_layer_and_of_tokens_are_trained(model_folder, options, adapter):
    """The loss of a training does not make all logits, and must see these adapters nevertheless."""
    peft = pytest.importorskip("peft")
    set_seed(1)
    base = AutoModelForSeq2SeqLM.from_pretrained(model_folder)
    base.config.label_smoothing = 0.0
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, **options)).train()
    loss = model(**PAIR).loss
    loss.backward()
    found = [x.grad for name, x in model.named_parameters() if adapter in name and x.requires_grad]
    assert found and all(gradient is not None and gradient.any() for gradient in found)
    torch.testing.assert_close(model.eval()(**PAIR).loss, loss)


def test_adapters_are_merged_before_folding(folders):
    model = with_adapter(folders / "final")
    for make, given in ((fold_omega, model), (standard_model, model.base_model.model)):
        with pytest.raises(FoldingError, match="merge"):
            make(given)


@pytest.mark.slow  # trains several models
def test_a_search_tries_new_models(model_folder):
    pytest.importorskip("optuna")
    scope = run("fine-tuning with AdminTrainer", model_folder, {})
    run(f"hyper-parameter search, {HERE}", model_folder, scope)
    best = scope["best"]
    assert best.hyperparameters.keys() == {"learning_rate"} and 1e-4 <= best.hyperparameters["learning_rate"] <= 1e-2
    assert 0 <= best.objective <= 100  # BLEU, not the loss


def test_lora_continues_from_a_checkpoint(model_folder, tmp_path):
    """The second run ends bit-identical, and a model whose ω was measured stays one."""

    def trainer(output_dir: Path) -> AdminTrainer:
        model, tokenizer = with_adapter(model_folder, lora_dropout=0.1), AutoTokenizer.from_pretrained(model_folder)
        steps = {"warmup_steps": 2, "max_steps": 6, "save_strategy": "steps", "save_steps": 3}
        args = AdminTrainingArguments(str(output_dir), max_tokens=64, learning_rate=1e-2, disable_tqdm=True, **steps)
        return AdminTrainer(model, args, processing_class=tokenizer, train_dataset=text_pairs(tokenizer, 20))

    whole = trainer(tmp_path / "run")
    before = trained(whole.model)
    whole.train()
    shutil.rmtree(tmp_path / "run" / "checkpoint-6")
    resumed = trainer(tmp_path / "run")
    resumed.train(resume_from_checkpoint=True)
    expected = trained(whole.model)
    assert all(torch.equal(x, expected[name]) for name, x in trained(resumed.model).items())
    assert not any(torch.equal(x, expected[name]) for name, x in before.items())
    assert getattr(resumed.model.config, "omega_profiled", True)


def test_accumulated_batches_weigh_by_their_tokens_under_lora(folders, tmp_path):
    """The plain Trainer finds through PEFT's wrapper that our model divides by the tokens of the update itself."""
    tokenizer = AutoTokenizer.from_pretrained(folders / "final")
    data = text_pairs(tokenizer, 8).select_columns(["input_ids", "labels"])

    def update(data: Dataset, batch_size: int) -> dict[str, torch.Tensor]:
        model = with_adapter(folders / "final")
        plain = {"optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant", "max_grad_norm": 0}
        sizes = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": 8 // batch_size}
        args = Seq2SeqTrainingArguments(
            str(tmp_path), max_steps=1, save_strategy="no", report_to="none", disable_tqdm=True, **plain | sizes
        )
        collator = DataCollatorForSeq2Seq(tokenizer, model)
        Seq2SeqTrainer(model, args, train_dataset=data, data_collator=collator).train()
        return trained(model)

    at_once, in_parts = update(data, 8), update(data, 2)
    for name, x in at_once.items():
        torch.testing.assert_close(in_parts[name], x, rtol=0, atol=1e-5)


@pytest.mark.slow  # torch.onnx.export
def test_onnxruntime_gives_the_same_logits(model_folder, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    scope = run(f"ONNX, {HERE}", model_folder, {})
    tokenizer, model = scope["tokenizer"], scope["model"]
    inputs = dict(tokenizer(random_texts(3, seed=5), return_tensors="pt", padding=True))
    inputs["decoder_input_ids"] = torch.randint(2, len(tokenizer) - 1, (3, 7))  # other sizes than the example's
    (found,) = scope["session"].run(["logits"], {name: x.numpy() for name, x in inputs.items()})
    with torch.no_grad():
        expected = model(**inputs).logits
    assert (torch.from_numpy(found) - expected).abs().max() < 1e-5
    assert float(capsys.readouterr().out.splitlines()[-1]) < 1e-5


def test_ctranslate2_runs_an_exported_folder(model_folder, capsys):
    pytest.importorskip("ctranslate2")
    invoke("model", "export", model_folder, "--output", "exported", "--ctranslate2", "--quantization", "int8")
    wanted = {"model.bin", "config.json", "shared_vocabulary.json", "tokenizer.json"}
    assert wanted <= {path.name for path in Path("exported").iterdir()}
    exec(example(f"CTranslate2, {HERE}"), {})
    assert capsys.readouterr().out.strip()
