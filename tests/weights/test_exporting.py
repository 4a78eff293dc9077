"""Stock folders: the stock class computes and translates the same, and a failed export leaves nothing behind."""

import json

import pytest
import torch
import transformers
from packaging.version import Version
from stock_worker import outputs, run_stock
from toy import random_texts, toy_tokenizer
from transformers import AutoTokenizer
from typer.testing import CliRunner

from admin_nmt import AdminForConditionalGeneration, Translator
from admin_nmt.cli.app import app
from admin_nmt.data.tokenization.byte_bpe import save_tokenizers, with_pad_at
from admin_nmt.runs import finishing
from admin_nmt.weights import exporting
from admin_nmt.weights.exporting import ExportError, check_same_outputs, export_standard, standard_model

TWO_VOCABULARIES = {"share_encoder_decoder_embeddings": False}
CASES = {
    "post_ln": {"variant": "post_ln"},
    "pre_ln": {"variant": "pre_ln"},
    "ds_init": {"variant": "ds_init", "released_init": True},
    "ln_scaling": {"variant": "ln_scaling"},
    "untied admin": {"tie_word_embeddings": False},
    "untied pre_ln": {"tie_word_embeddings": False, "variant": "pre_ln"},
    "two vocabularies": TWO_VOCABULARIES,
    "unscaled embeddings": {"scale_embedding": False},
}


@pytest.fixture(scope="module")
def tokenizer():
    return toy_tokenizer()


@pytest.fixture
def model(tiny_model, tokenizer):
    """Builds a model of the tokenizer's size; keyword arguments override fields."""
    return lambda **fields: tiny_model(vocab_size=len(tokenizer), **fields)


def learn_to_copy(model: AdminForConditionalGeneration, tokenizer, updates: int) -> AdminForConditionalGeneration:
    """Train for a few updates, so that translations end and have different lengths."""
    batch = tokenizer(random_texts(24, seed=7), return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(updates):
        optimizer.zero_grad()
        model.train()(**batch, labels=labels).loss.backward()
        optimizer.step()
    return model.eval()


def stock_class(fields: dict) -> str:
    pegasus = fields.get("variant") in ("pre_ln", "ln_scaling")
    return "PegasusForConditionalGeneration" if pegasus else "MarianMTModel"


def test_stock_classes_in_another_process(model, tokenizer, tmp_path):
    """Plain AutoModelForSeq2SeqLM and AutoTokenizer give the same logits, beams and text."""
    inputs = dict(tokenizer(random_texts(3, seed=5), return_tensors="pt", padding=True))
    inputs["decoder_input_ids"] = inputs["input_ids"].roll(1, 1)
    given = inputs | {"texts": random_texts(8, seed=6)}
    folders, expected = [], []
    for name, fields in CASES.items():
        ours = learn_to_copy(model(**fields), tokenizer, updates=60)
        folders.append(tmp_path / name)
        export_standard(ours, tokenizer, folders[-1], target_tokenizer=tokenizer)
        expected.append(outputs(ours, tokenizer, **given))
    for (name, fields), ours, stock in zip(CASES.items(), expected, run_stock(folders, given), strict=True):
        assert stock["class"] == stock_class(fields)
        assert (ours["logits"] - stock["logits"]).abs().max() < 1e-4, name
        assert ours["beams"] == stock["beams"], name
        assert ours["translations"] == stock["translations"], name
        assert len(set(ours["translations"])) > 1, name


@pytest.mark.parametrize(("variant", "limit"), [("admin", None), ("pre_ln", 30)])  # the limit, as older folders have it
def test_folder(model, tokenizer, tmp_path, variant, limit):
    ours = model(variant=variant)
    ours.generation_config.num_beams, ours.generation_config.max_new_tokens = 4, limit
    reloaded = export_standard(ours, tokenizer, tmp_path / "stock")
    assert reloaded.name_or_path == str(tmp_path / "stock")
    assert {path.name for path in (tmp_path / "stock").iterdir()} == {
        "config.json",
        "export.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = json.loads((tmp_path / "stock" / "config.json").read_text())
    assert config["architectures"] == [stock_class({"variant": variant})] == [type(reloaded).__name__]
    assert "auto_map" not in config
    generation = json.loads((tmp_path / "stock" / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["bad_words_ids"]) == (4, [[tokenizer.pad_token_id]])
    positions = ours.config.max_position_embeddings
    assert generation["max_length"] == (positions if limit is None else limit + 1)
    assert "max_new_tokens" not in generation
    saved = AutoTokenizer.from_pretrained(tmp_path / "stock")
    assert len(saved("ba " * 9 * positions, truncation=True)["input_ids"]) == positions != tokenizer.model_max_length
    report = json.loads((tmp_path / "stock" / "export.json").read_text())
    assert report["variant"] == variant and 0 <= report["max_logit_error"] < 1e-4


def test_double_precision_stays(model, tokenizer, tmp_path):
    assert export_standard(model().double(), tokenizer, tmp_path / "stock").dtype == torch.float64


def test_two_vocabularies(model, tokenizer, tmp_path):
    target = toy_tokenizer(seed=3)
    export_standard(model(**TWO_VOCABULARIES), tokenizer, tmp_path / "stock", target)
    assert AutoTokenizer.from_pretrained(tmp_path / "stock").get_vocab() == tokenizer.get_vocab()
    assert AutoTokenizer.from_pretrained(tmp_path / "stock" / "target_tokenizer").get_vocab() == target.get_vocab()


TWO_SIZES_REFUSED = Version(transformers.__version__) < Version(exporting.TWO_SIZES)


def test_an_older_release_is_told_to_have_no_search_in_vocabularies_of_two_sizes(tiny_model, monkeypatch):
    model = tiny_model(**TWO_VOCABULARIES, vocab_size=300, decoder_vocab_size=270)
    monkeypatch.setattr(exporting.transformers, "__version__", "5.17.0")
    with pytest.raises(ExportError, match=r"two sizes from transformers 5\.18\.0 on, and this is 5\.17\.0"):
        standard_model(model)


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
    ("fields", "message"),
    [
        (TWO_VOCABULARIES, "target_tokenizer"),
        ({"positions": "fairseq"}, "positions"),
        ({"score_padding": True}, "<pad>"),
        ({"pad_token_id": 1}, "pad_token_id"),
        ({"vocab_size": 99}, "vocab_size is 99"),
        ({"variant": "dlcl_pre_ln"}, "dlcl_pre_ln"),
        ({"variant": "b2t"}, "'b2t' cannot be folded: no standard Transformer adds a layer's input before its last"),
        ({"variant": "rezero"}, "'rezero' cannot be folded: it has no LayerNorm"),
        ({"variant": "t_fixup"}, "'t_fixup' cannot be folded: it has no LayerNorm"),
        ({"variant": "transparent_pre_ln"}, "'transparent_pre_ln' cannot be folded: share the model as it is"),
    ],
)
def test_refused_with_a_reason(tiny_model, tokenizer, tmp_path, fields, message):
    model = tiny_model(**{"vocab_size": len(tokenizer)} | fields)
    with pytest.raises(ValueError, match=message):
        export_standard(model, tokenizer, tmp_path / "stock")
    assert not list(tmp_path.iterdir())


def test_a_vocabulary_that_was_extended(tiny_model, tmp_path):
    tokenizer = toy_tokenizer()
    model, pad = tiny_model(vocab_size=len(tokenizer)), tokenizer.pad_token_id
    model.resize_token_embeddings(len(tokenizer) + tokenizer.add_tokens(["<term>"]))
    message = f"pad_token_id: is {pad}; stock tools need <pad> to be the last id, here {pad + 1}, .*the folder itself"
    with pytest.raises(ExportError, match=message):
        export_standard(model, tokenizer, tmp_path / "stock")


def test_pegasus_has_one_vocabulary(model, tokenizer, tmp_path):
    with pytest.raises(ExportError, match="one vocabulary"):
        export_standard(model(variant="pre_ln", **TWO_VOCABULARIES), tokenizer, tmp_path / "stock", tokenizer)


@pytest.mark.parametrize("exists", [False, True])
def test_failed_check_leaves_nothing_behind(model, tokenizer, tmp_path, monkeypatch, exists):
    def fail(*args):
        raise ExportError("differs")

    monkeypatch.setattr(exporting, "check_same_outputs", fail)
    if exists:
        (tmp_path / "stock").mkdir()
    with pytest.raises(ExportError, match="differs"):
        export_standard(model(), tokenizer, tmp_path / "stock")
    assert [path.name for path in tmp_path.iterdir()] == ["stock"] * exists
    assert not exists or not list((tmp_path / "stock").iterdir())


def test_only_an_empty_folder_is_taken(model, tokenizer, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="full: exists already"):
        export_standard(model(), tokenizer, full)
    assert [path.name for path in full.iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    export_standard(model(), tokenizer, tmp_path / "empty")
    assert (tmp_path / "empty" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "name", ["model.encoder.layers.1.fc1.bias", "model.decoder.layers.1.encoder_attn.q_proj.weight"]
)
def test_check_finds_a_wrong_weight(model, name):
    ours = model()
    stock = standard_model(ours)
    assert check_same_outputs(ours, stock) < 1e-5
    with torch.no_grad():
        stock.get_parameter(name)[0] += 0.1
    with pytest.raises(ExportError, match="logits differ"):
        check_same_outputs(ours, stock)
    with torch.no_grad():
        stock.final_logits_bias[:, 7] = 100
    with pytest.raises(ExportError, match="beam-5 output differs"):
        check_same_outputs(ours, stock, tolerance=1000)


def test_every_rate_of_dropout_is_exported(model):
    rates = {"dropout": 0.3, "attention_dropout": 0.1, "activation_dropout": 0.2}
    config = standard_model(model(**rates)).config
    assert {name: getattr(config, name) for name in rates} == rates


def test_a_model_of_few_positions_is_checked(model):
    ours = model(max_position_embeddings=7)
    assert check_same_outputs(ours, standard_model(ours)) < 1e-5


def test_model_is_left_alone(model, tokenizer, tmp_path):
    ours = model().train()
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    export_standard(ours, tokenizer, tmp_path / "stock")
    assert ours.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())


def test_a_model_that_was_trained_in_bfloat16_is_checked_in_float32(model, tokenizer, tmp_path):
    """In the process of the training: accelerate puts autocast before `forward`, and leaves it there."""
    ours = learn_to_copy(model(), tokenizer, updates=5)
    ours.forward = torch.autocast("cpu", torch.bfloat16)(ours.forward)
    with pytest.raises(ExportError, match="logits differ"):
        check_same_outputs(ours, standard_model(ours))
    export_standard(ours, tokenizer, tmp_path / "out")


@pytest.mark.parametrize("variant", ["post_ln", "pre_ln"])
def test_the_stock_model_is_where_the_model_is(model, variant):
    stock = standard_model(model(variant=variant).to("meta"))
    assert {tensor.device.type for tensor in (*stock.parameters(), *stock.buffers())} == {"meta"}


@pytest.mark.parametrize("variant", ["post_ln", "pre_ln", "admin", "ln_scaling"])
def test_half_precision_is_written_and_compared_in_float32(model, tokenizer, tmp_path, variant):
    """In bfloat16 the logits of one class and the other differ by rounding, and ω cannot be folded."""
    stock = export_standard(model(variant=variant).bfloat16(), tokenizer, tmp_path / "out")
    assert stock.dtype == torch.float32
    assert json.loads((tmp_path / "out" / "export.json").read_text())["max_logit_error"] < 1e-4


def test_a_folder_in_half_precision_is_folded_and_exported(model, tokenizer, tmp_path):
    ours = model(variant="admin").bfloat16()
    ours.save_pretrained(tmp_path / "model")
    save_tokenizers(tmp_path / "model", tokenizer)
    for command in ("fold", "export"):
        result = CliRunner().invoke(
            app, ["model", command, str(tmp_path / "model"), "--output", str(tmp_path / command)]
        )
        assert result.exit_code == 0, result.output
    assert finishing.export(tmp_path / "model", tmp_path / "standard")["class"] == "MarianMTModel"


def test_settings_of_the_search_do_not_disturb_the_check(model, tokenizer, tmp_path):
    ours = model()
    ours.generation_config.update(do_sample=True, num_return_sequences=8, return_dict_in_generate=True)
    export_standard(ours, tokenizer, tmp_path / "out")


def test_forbidden_words_stay_forbidden(model, tokenizer, tmp_path):
    ours = model()
    ours.generation_config.bad_words_ids = [[5], [6, 7]]
    expected = [[5], [6, 7], [ours.config.pad_token_id]]
    assert export_standard(ours, tokenizer, tmp_path / "out").generation_config.bad_words_ids == expected
    ours.generation_config.bad_words_ids = expected
    assert standard_model(ours).generation_config.bad_words_ids == expected


def test_half_precision_stays_where_nothing_is_folded(model):
    assert standard_model(model(variant="post_ln").bfloat16()).dtype == torch.bfloat16
    with pytest.raises(exporting.FoldingError, match="fold in float32 or wider"):
        standard_model(model(variant="admin").bfloat16())
