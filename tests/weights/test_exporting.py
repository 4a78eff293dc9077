"""Stock folders: the stock class computes and translates the same, and a failed export leaves nothing behind."""

import json

import pytest
import torch
import transformers
from model_outputs import outputs
from packaging.version import Version
from toy import learn_to_copy, random_texts, toy_tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from admin_nmt import Translator
from admin_nmt.data.tokenization.byte_bpe import with_pad_at
from admin_nmt.weights import exporting
from admin_nmt.weights.exporting import ExportError, check_same_outputs, export_standard, standard_model

TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False}
CASES = {
    "post_ln": {"variant": "post_ln"},
    "pre_ln": {"variant": "pre_ln"},
    "ln_scaling": {"variant": "ln_scaling"},
    "untied admin": {"tie_word_embeddings": False},
    "untied pre_ln": {"tie_word_embeddings": False, "variant": "pre_ln"},
    "two vocabularies": TWO_VOCABULARIES,
    "unscaled embeddings": {"scale_embedding": False},
}


@pytest.fixture
def model(tiny_model, tokenizer):
    """Builds a model of the tokenizer's size; keyword arguments override fields."""
    return lambda **fields: tiny_model(vocab_size=len(tokenizer), **fields)


def stock_class(fields: dict) -> str:
    pegasus = fields.get("variant") in ("pre_ln", "ln_scaling")
    return "PegasusForConditionalGeneration" if pegasus else "MarianMTModel"


@pytest.mark.parametrize("name", CASES)
def test_stock_classes_compute_the_same(model, tokenizer, tmp_path, name):
    """Plain AutoModelForSeq2SeqLM and AutoTokenizer give the same logits, beams and text.

    That they do so without this package is in tests/hub/test_hub.py, and in tests/versions.py under other releases.
    """
    inputs = dict(tokenizer(random_texts(3, seed=5), return_tensors="pt", padding=True))
    inputs |= {"decoder_input_ids": inputs["input_ids"].roll(1, 1), "texts": random_texts(8, seed=6)}
    ours = learn_to_copy(model(**CASES[name]), tokenizer, tokenizer, random_texts(24, seed=7), updates=20)
    export_standard(ours, tokenizer, tmp_path / "out", target_tokenizer=tokenizer)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out"), AutoTokenizer.from_pretrained(tmp_path / "out")
    expected, found = outputs(ours, tokenizer, **inputs), outputs(*loaded, **inputs)
    assert found["class"] == stock_class(CASES[name])
    assert (expected["logits"] - found["logits"]).abs().max() < 1e-4
    assert (expected["beams"], expected["translations"]) == (found["beams"], found["translations"])
    assert len(set(expected["translations"])) > 1


@pytest.mark.parametrize(("variant", "limit"), [("admin", None), ("pre_ln", 30)])  # the limit, as older folders have it
def test_folder(model, tokenizer, tmp_path, variant, limit):
    """Its files say what the model's say, and the model is left as it was."""
    rates = {"dropout": 0.3, "attention_dropout": 0.1, "activation_dropout": 0.2}
    ours = model(variant=variant, **rates).train()
    ours.generation_config.update(num_beams=4, max_new_tokens=limit, bad_words_ids=[[5], [6, 7]], do_sample=True)
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    reloaded = export_standard(ours, tokenizer, tmp_path / "stock")
    assert ours.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())
    files = "config.json export.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json"
    assert sorted(path.name for path in (tmp_path / "stock").iterdir()) == files.split()
    config = json.loads((tmp_path / "stock" / "config.json").read_text())
    assert config["architectures"] == [stock_class({"variant": variant})] == [type(reloaded).__name__]
    assert "auto_map" not in config
    assert {name: config[name] for name in rates} == rates
    generation = json.loads((tmp_path / "stock" / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["bad_words_ids"]) == (4, [[5], [6, 7], [tokenizer.pad_token_id]])
    positions = ours.config.max_position_embeddings
    assert generation["max_length"] == (positions if limit is None else limit + 1)
    assert "max_new_tokens" not in generation
    saved = AutoTokenizer.from_pretrained(tmp_path / "stock")
    assert len(saved("ba " * 9 * positions, truncation=True)["input_ids"]) == positions != tokenizer.model_max_length
    report = json.loads((tmp_path / "stock" / "export.json").read_text())
    assert report["variant"] == variant and 0 <= report["max_logit_error"] < 1e-4


TWO_SIZES_REFUSED = Version(transformers.__version__) < Version(exporting.TWO_SIZES)


@pytest.mark.skipif(TWO_SIZES_REFUSED, reason=f"needs transformers {exporting.TWO_SIZES}")
@pytest.mark.parametrize(("source", "target"), [(300, 270), (270, 300)])
def test_two_vocabularies_of_different_sizes(tiny_model, tmp_path, source, target):
    """A stock Marian of both, whichever is larger: <pad> is the last id of the smaller one in both."""
    pad = min(source, target) - 1
    tokenizers = [with_pad_at(toy_tokenizer(seed, size), pad) for seed, size in ((0, source), (3, target))]
    model = tiny_model(**TWO_VOCABULARIES, vocab_size=source, decoder_vocab_size=target, variant="admin")
    stock = export_standard(model, tokenizers[0], tmp_path / "stock", tokenizers[1])
    assert type(stock).__name__ == "MarianMTModel"
    ours = Translator(model, *tokenizers, num_beams=3).translate(random_texts(5))
    assert Translator.from_pretrained(tmp_path / "stock", num_beams=3).translate(random_texts(5)) == ours


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (TWO_VOCABULARIES, "target_tokenizer"),
        ({"positions": "fairseq"}, "positions"),
        ({"score_padding": True}, "<pad>"),
        ({"pad_token_id": 1}, "pad_token_id"),
        ({"vocab_size": 99}, "vocab_size"),
        (TWO_VOCABULARIES | {"variant": "pre_ln"}, "vocabulary"),
        *(({"variant": name}, name) for name in ("dlcl_pre_ln", "b2t")),
    ],
)
def test_refused_by_name(tiny_model, tokenizer, tmp_path, fields, named):
    model = tiny_model(**{"vocab_size": len(tokenizer)} | fields)
    target = tokenizer if fields.get("variant") == "pre_ln" else None
    with pytest.raises(ValueError, match=named):
        export_standard(model, tokenizer, tmp_path / "stock", target)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fields", "dtype", "written"),
    [
        ({"variant": "admin"}, torch.bfloat16, torch.float32),
        ({"variant": "pre_ln"}, torch.bfloat16, torch.float32),
        ({"variant": "admin", "max_position_embeddings": 7}, torch.float64, torch.float64),
    ],
    ids=str,
)
def test_half_precision_is_written_and_compared_in_float32(model, tokenizer, tmp_path, fields, dtype, written):
    """In bfloat16 the logits of one class and the other differ by rounding, and ω cannot be folded."""
    stock = export_standard(model(**fields).to(dtype), tokenizer, tmp_path / "stock")
    assert stock.dtype == written
    assert json.loads((tmp_path / "stock" / "export.json").read_text())["max_logit_error"] < 1e-4


def test_check_finds_a_wrong_weight(model):
    ours = model()
    stock = standard_model(ours)
    assert check_same_outputs(ours, stock) < 1e-5
    with torch.no_grad():
        stock.get_parameter("model.decoder.layers.1.encoder_attn.q_proj.weight")[0] += 0.1
    with pytest.raises(ExportError, match="logits differ"):
        check_same_outputs(ours, stock)
    with torch.no_grad():
        stock.final_logits_bias[:, 7] = 100
    with pytest.raises(ExportError, match="beam-5 output differs"):
        check_same_outputs(ours, stock, tolerance=1000)


def test_a_model_that_was_trained_in_bfloat16_is_checked_in_float32(model, tokenizer, tmp_path, monkeypatch):
    """In the process of the training: accelerate puts autocast before `forward`, and leaves it there."""
    ours = learn_to_copy(model(), tokenizer, tokenizer, random_texts(24, seed=7), updates=5)
    ours.forward = torch.autocast("cpu", torch.bfloat16)(ours.forward)
    with pytest.raises(ExportError, match="logits differ"):
        check_same_outputs(ours, standard_model(ours))
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "check_same_outputs", lambda *args: pytest.fail("differs"))
        with pytest.raises(pytest.fail.Exception):
            export_standard(ours, tokenizer, tmp_path / "out")
    assert not list(tmp_path.iterdir())  # what fails the check leaves no folder
    export_standard(ours, tokenizer, tmp_path / "out")


def test_the_stock_model_is_where_the_model_is(model):
    stock = standard_model(model(variant="pre_ln").to("meta"))
    assert {tensor.device.type for tensor in (*stock.parameters(), *stock.buffers())} == {"meta"}
