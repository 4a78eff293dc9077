"""CTranslate2 as a backend: its stock converter reads our stock folders, and translations are the same."""

import itertools
import json
import logging
import math
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from toy import bit_flipped, random_texts, removed, toy_tokenizer, truncated
from transformers import AutoTokenizer

from admin_nmt import Translator
from admin_nmt.data.tokenization.byte_bpe import save_tokenizers
from admin_nmt.decoding import ctranslate2_backend
from admin_nmt.decoding.ctranslate2_backend import export_ctranslate2
from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.scoring import score_pairs
from admin_nmt.weights.exporting import ExportError, export_standard

ctranslate2 = pytest.importorskip("ctranslate2")
TEXTS = random_texts(40, seed=8)


@pytest.fixture(scope="module")
def tokenizer():
    return toy_tokenizer()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of converted models."""
    monkeypatch.setattr(ctranslate2_backend, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def trained(tiny_model, tokenizer):
    """Builds a model that learnt for a few updates to copy, so that its translations end and differ in length.

    It learns besides not to end at once: CTranslate2 takes that out of the first softmax, which changes each score by
    the logarithm of what it leaves, and two hypotheses of different lengths by different amounts.
    """

    def build(**fields):
        model = tiny_model(vocab_size=len(tokenizer), **fields)
        batch = tokenizer(random_texts(24, seed=7), return_tensors="pt", padding=True)
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(60):
            optimizer.zero_grad()
            output = model(**batch, labels=labels)
            (output.loss + 0.1 * output.logits[:, 0].log_softmax(-1)[:, 0].mean()).backward()
            optimizer.step()
        return model

    return build


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    """Where the first test that needs the stock folder writes it."""
    return tmp_path_factory.mktemp("exported") / "stock"


@pytest.fixture
def stock(exported, trained, tokenizer, tmp_path) -> Path:
    """A stock Marian folder, the test's own."""
    if not exported.exists():
        export_standard(trained(), tokenizer, exported)
    return shutil.copytree(exported, tmp_path / "stock")


def pair(folder: Path, **options) -> tuple[Translator, Translator]:
    """The same model by torch and by CTranslate2."""
    return (
        Translator.from_pretrained(folder, device="cpu", **options),
        Translator.from_pretrained(folder, device="cpu", backend="ctranslate2", **options),
    )


def best_ids(translator: Translator, sources: list[list[int]], **options) -> list[list[int]]:
    """Target ids of the best translations."""
    return [found[0].ids for found in translator.search_ids(sources, **options)]


def cut(sources: list[list[int]], *systems: list[list[int]]) -> set[int]:
    """Sentences whose translation by one of the systems has as many tokens as it may have; they are few.

    A beam search may rightly choose differently there: CTranslate2 scores such a hypothesis without an end of sentence.
    """
    limits = [min(2 * len(source) + 20, 63) for source in sources]
    found = {i for outputs in systems for i, limit in enumerate(limits) if len(outputs[i]) >= limit}
    assert len(found) <= len(sources) // 4
    return found


@pytest.mark.parametrize("layout", [(1, 2), (2, 1), (3, 1)])
def test_layouts_of_threads_give_the_same_in_the_same_order(stock, monkeypatch, layout):
    plain = Translator.from_pretrained(stock, device="cpu", backend="ctranslate2", batch_tokens=40)
    monkeypatch.setattr(ctranslate2_backend, "thread_layout", lambda *arguments: layout)
    other = Translator.from_pretrained(stock, device="cpu", backend="ctranslate2", batch_tokens=40)
    assert other.model.model.num_translators == layout[0]
    assert other.translate(TEXTS) == plain.translate(TEXTS)


def assert_same(theirs: Translator, ours: Translator, texts: list[str] = TEXTS) -> None:
    """The same translations; of a beam search, those that end before their limit."""
    pairs = dict(zip(texts, zip(theirs.translate(texts), ours.translate(texts), strict=True), strict=True))
    if ours.options.num_beams != 1:
        asked = [text for text in texts if text.strip()]
        sources = [ids[:-1][:63] + ids[-1:] for ids in ours.tokenizer(asked)["input_ids"]]
        given = ours.options.search_arguments()
        for index in cut(sources, *(best_ids(system, sources, **given) for system in (theirs, ours))):
            pairs.pop(asked[index], None)  # the same sentence may come twice
    assert {text: found for text, (found, _) in pairs.items()} == {text: wanted for text, (_, wanted) in pairs.items()}


@pytest.mark.parametrize(
    "variants", [("admin", "pre_ln"), pytest.param(("deepnorm", "post_ln"), marks=pytest.mark.slow)]
)
def test_the_stock_command_converts_the_folder(trained, tokenizer, tmp_path, variants):
    """`ct2-transformers-converter` as it is shipped; then greedy and beam search give the same tokens as ours."""
    command, running = Path(sys.executable).with_name("ct2-transformers-converter"), []
    for variant in variants:
        export_standard(trained(variant=variant), tokenizer, tmp_path / variant)
        arguments = ["--model", tmp_path / variant, "--output_dir", tmp_path / f"{variant}-converted"]
        running.append(subprocess.Popen([command, *arguments], stderr=subprocess.PIPE, text=True))
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    sources = tokenizer(TEXTS)["input_ids"]
    source, end = [tokenizer.convert_ids_to_tokens(ids) for ids in sources], tokenizer.eos_token
    for variant, beams in itertools.product(variants, (1, 5)):
        theirs = ctranslate2.Translator(str(tmp_path / f"{variant}-converted"))
        results = theirs.translate_batch(source, beam_size=beams, max_decoding_length=60, return_end_token=True)
        tokens = [[token for token in result.hypotheses[0] if token != end] for result in results]
        ids = [tokenizer.convert_tokens_to_ids(row) for row in tokens]
        expected = best_ids(Translator.from_pretrained(tmp_path / variant, device="cpu"), sources, num_beams=beams)
        ended = [i for i in range(len(TEXTS)) if i not in cut(sources, ids, expected)]
        assert [ids[i] for i in ended] == [expected[i] for i in ended]
        assert len({len(expected[i]) for i in ended}) > 3


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 1},
        {"num_beams": 5},
        {"num_beams": 4, "length_penalty": 0.0},
        {"num_beams": 4, "length_penalty": 0.6, "batch_tokens": 50},
        {"num_beams": 3, "length_penalty": 2.0, "batch_tokens": 1},
        {"num_beams": 1, "max_new_tokens": 4},
    ],
    ids=str,
)
def test_translates_as_torch_does(stock, options):
    ours, theirs = pair(stock, **options)
    texts = ["", *TEXTS, "ba " * 90, "  "]
    assert_same(theirs, ours, texts)


def test_the_limit_of_each_sentence_holds_whatever_the_batch(stock, trained, tokenizer, tmp_path):
    model = trained()
    with torch.no_grad():
        model.model.shared.weight[0] = 0  # the end of sentence loses its probability: translations run on
    export_standard(model, tokenizer, tmp_path / "endless")
    theirs = Translator.from_pretrained(tmp_path / "endless", backend="ctranslate2", num_beams=3)
    ids = tokenizer(TEXTS)["input_ids"]
    together = best_ids(theirs, ids, num_beams=3)
    assert together == [best_ids(theirs, [row], num_beams=3)[0] for row in ids]
    limits = [min(2 * len(row) + 20, 63) for row in ids]
    assert any(len(row) == limit for row, limit in zip(together, limits, strict=True))
    assert all(len(row) <= limit for row, limit in zip(together, limits, strict=True))


def test_n_best_come_with_the_models_scores(stock):
    ours, theirs = pair(stock, num_beams=4, length_penalty=0.6)
    sources = ours.tokenizer(TEXTS)["input_ids"]
    found = theirs.search_ids(sources, nbest=3, num_beams=4, length_penalty=0.6)
    whole = [(source, one) for source, rows in zip(sources, found, strict=True) for one in rows]
    whole = [(source, one) for source, one in whole if len(one.ids) < min(2 * len(source) + 20, 63)]
    assert len(whole) > len(sources)
    targets = [[*one.ids, 0] for _, one in whole]
    totals = [sum(scores) for scores in score_pairs(ours.model, [source for source, _ in whole], targets)]
    near = {"abs": 0.05}  # for what it takes out of the first softmax
    assert [one.log_prob for _, one in whole] == pytest.approx(totals, **near)
    expected = [total / len(target) ** 0.6 for total, target in zip(totals, targets, strict=True)]
    assert [one.score for _, one in whole] == pytest.approx(expected, **near)
    assert all(rows == sorted(rows, key=lambda one: -one.score) for rows in found)
    assert [rows[0].text for rows in theirs.translations(TEXTS, nbest=3)] == theirs.translate(TEXTS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": Sampling()}, "sampling"),
        ({"target_prefixes": ["ba"]}, "target prefix"),
        ({"forbidden": ["ba"]}, "forbidden text"),
        ({"generate": {"bad_words_ids": [[5, 6]]}, "num_beams": 2}, "bad_words_ids"),
        ({"alignment_layer": -1}, "alignment"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_it_cannot_do_is_refused(stock, options, message):
    theirs = Translator.from_pretrained(stock, device="cpu", backend="ctranslate2")
    with pytest.raises(ValueError, match=message):
        theirs.translations(["ba do."], **options)


@pytest.mark.parametrize("variant", ["admin", "pre_ln"])
def test_a_folder_trained_here_is_exported_on_the_way(trained, tokenizer, tmp_path, variant):
    trained(variant=variant).save_pretrained(tmp_path / "final")
    save_tokenizers(tmp_path / "final", tokenizer)
    ours, theirs = pair(tmp_path / "final", num_beams=4)
    assert_same(theirs, ours)


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("variant", ["admin", "pre_ln", "stock"])
def test_an_exported_folder_runs_without_this_package(trained, tokenizer, stock, tmp_path, variant, quantization):
    folder = stock
    if variant != "stock":
        trained(variant=variant).save_pretrained(folder := tmp_path / "trained")
        save_tokenizers(folder, tokenizer)
    same = export_ctranslate2(folder, tmp_path / "out", quantization)
    assert same == 1 if quantization is None else same > 0.5
    theirs, engine = AutoTokenizer.from_pretrained(tmp_path / "out"), ctranslate2.Translator(str(tmp_path / "out"))
    assert engine.compute_type == ("int8_float32" if quantization else "float32")
    pieces = [theirs.convert_ids_to_tokens(theirs(text)["input_ids"]) for text in TEXTS]
    found = [result.hypotheses[0] for result in engine.translate_batch(pieces, beam_size=1, max_decoding_length=20)]
    texts = theirs.batch_decode([theirs.convert_tokens_to_ids(tokens) for tokens in found], skip_special_tokens=True)
    expected = Translator.from_pretrained(folder, num_beams=1, max_new_tokens=20, dtype="float32").translate(TEXTS)
    equal = [ours == other for ours, other in zip(expected, texts, strict=True)]
    assert all(equal) if quantization is None else sum(equal) > 0.7 * len(TEXTS)


def test_an_export_is_no_model_for_torch(stock, tmp_path):
    export_ctranslate2(stock, tmp_path / "out")
    for backend in ("torch", "ctranslate2"):
        with pytest.raises(ValueError, match=r"out: was written for CTranslate2 alone, .*backend 'ctranslate2'"):
            Translator.from_pretrained(tmp_path / "out", backend=backend)


def test_an_export_that_translates_otherwise_leaves_nothing(stock, tmp_path, monkeypatch):
    monkeypatch.setattr(ctranslate2_backend, "_same_translations", lambda *_: 0.95)
    with pytest.raises(ExportError, match="CTranslate2 translates 5% of random sentences unlike the stock model"):
        export_ctranslate2(stock, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert export_ctranslate2(stock, tmp_path / "out", "int8") == 0.95


def test_the_translations_of_other_weights_are_not_the_same(stock, trained, tokenizer, tmp_path):
    export_standard(trained(variant="post_ln"), tokenizer, tmp_path / "other")
    export_ctranslate2(tmp_path / "other", tmp_path / "out")
    assert ctranslate2_backend._same_translations(stock, tmp_path / "out") < 1


def test_a_pickled_translator_loads_its_folder_again(stock, monkeypatch):
    monkeypatch.chdir(stock.parent)
    ours = Translator.from_pretrained(stock.name, backend="ctranslate2", compute_type="int8", device="cpu", num_beams=2)
    monkeypatch.chdir("/")
    copied = pickle.loads(pickle.dumps(ours))
    assert copied.model is not ours.model
    assert copied.model.model.compute_type == ours.model.model.compute_type
    assert copied.translate(TEXTS) == ours.translate(TEXTS)


def test_threads_share_a_translator(stock):
    ours, shares = (
        Translator.from_pretrained(stock, backend="ctranslate2", batch_tokens=60),
        [TEXTS[i::4] for i in range(4)],
    )
    expected = [ours.translate(texts) for texts in shares]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ours.translate, shares * 2)) == expected * 2


def test_int8_loads_from_the_same_conversion(stock, cache):
    float32 = Translator.from_pretrained(stock, backend="ctranslate2")
    int8 = Translator.from_pretrained(stock, backend="ctranslate2", compute_type="int8", device="cpu")
    assert int8.model.model.compute_type.startswith("int8")
    assert float32.model.converted == int8.model.converted
    assert len(int8.translate(TEXTS)) == len(TEXTS)
    assert len(list(cache.iterdir())) == 1


def test_is_converted_once_for_each_content(stock, cache, monkeypatch):
    conversions, converter = [], ctranslate2.converters.TransformersConverter

    class Counting(converter):
        def convert(self, *args, **kwargs):
            conversions.append(self)
            return super().convert(*args, **kwargs)

    monkeypatch.setattr(ctranslate2.converters, "TransformersConverter", Counting)
    first = Translator.from_pretrained(stock, backend="ctranslate2").model.converted
    assert Translator.from_pretrained(stock, backend="ctranslate2").model.converted == first
    assert len(conversions) == 1
    model = Translator.from_pretrained(stock).model
    with torch.no_grad():
        model.model.shared.weight[5] += 1
    model.save_pretrained(stock)
    assert Translator.from_pretrained(stock, backend="ctranslate2").model.converted != first
    assert len(conversions) == 2
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", [truncated, bit_flipped, removed])
def test_a_damaged_conversion_is_made_again(stock, cache, damage):
    first = Translator.from_pretrained(stock, backend="ctranslate2").model.converted
    content = {path.name: path.read_bytes() for path in first.iterdir()}
    damage(first / "model.bin")
    assert Translator.from_pretrained(stock, backend="ctranslate2").model.converted == first
    assert {path.name: path.read_bytes() for path in first.iterdir()} == content


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(stock, cache, value):
    model = Translator.from_pretrained(stock).model
    with torch.no_grad():
        model.model.decoder.layers[0].fc1.weight[0, 0] = value
    model.save_pretrained(stock)
    with pytest.raises(
        ValueError, match=r"stock/model\.safetensors: model\.decoder\.layers\.0\.fc1\.weight is not fin"
    ):
        Translator.from_pretrained(stock, backend="ctranslate2")


def test_a_failed_conversion_leaves_nothing_behind(stock, cache, monkeypatch):
    def convert(self, folder, **kwargs):
        (Path(folder) / "model.bin").write_text("half")
        raise OSError("no space left")

    monkeypatch.setattr(ctranslate2.converters.TransformersConverter, "convert", convert)
    with pytest.raises(OSError, match="no space left"):
        Translator.from_pretrained(stock, backend="ctranslate2")
    assert not list(cache.iterdir())


def test_another_process_may_be_faster(stock, cache, monkeypatch):
    convert = ctranslate2.converters.TransformersConverter.convert

    def slow(self, folder, **kwargs):
        monkeypatch.undo()
        monkeypatch.setattr(ctranslate2_backend, "CACHE", cache)
        Translator.from_pretrained(stock, backend="ctranslate2")
        return convert(self, folder, **kwargs)

    monkeypatch.setattr(ctranslate2.converters.TransformersConverter, "convert", slow)
    late = Translator.from_pretrained(stock, backend="ctranslate2", num_beams=2)
    assert_same(late, Translator.from_pretrained(stock, num_beams=2))
    assert [path.name for path in cache.iterdir()] == [late.model.converted.name]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"variant": "dlcl_pre_ln"}, "cannot run in CTranslate2: variant 'dlcl_pre_ln'"),
        ({"share_encoder_decoder_embeddings": False}, "two vocabularies"),
    ],
)
def test_a_model_that_has_no_counterpart_is_refused(tiny_model, tokenizer, tmp_path, cache, fields, message):
    tiny_model(vocab_size=len(tokenizer), **fields).save_pretrained(tmp_path / "final")
    save_tokenizers(tmp_path / "final", tokenizer)
    with pytest.raises(ValueError, match=message):
        Translator.from_pretrained(tmp_path / "final", backend="ctranslate2")
    assert not cache.exists()


def test_a_model_of_another_kind_is_refused(stock):
    config = json.loads((stock / "config.json").read_text())
    (stock / "config.json").write_text(json.dumps(config | {"model_type": "bart"}))
    with pytest.raises(ValueError, match="is a bart model"):
        Translator.from_pretrained(stock, backend="ctranslate2")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("early_stopping", False),
        ("no_repeat_ngram_size", 3),
        ("do_sample", True),
        ("suppress_tokens", [4]),
        ("eos_token_id", [0, 5]),
        ("decoder_start_token_id", 3),
    ],
)
def test_no_setting_is_silently_ignored(stock, option, value):
    translator = Translator.from_pretrained(stock, backend="ctranslate2", num_beams=2)
    with pytest.raises(ValueError, match=f"{option}"):
        translator.translate(["ba do."], generate={option: value})


@pytest.mark.parametrize("device", ["abc", "cuda:99", "meta"])
def test_a_device_that_is_not_there_is_refused(stock, device):
    with pytest.raises(ValueError, match=f"there is no device '{device}' here"):
        Translator.from_pretrained(stock, backend="ctranslate2", device=device)


def test_uses_the_models_own_settings(stock, caplog):
    logging.Logger.warning_once.cache_clear()  # transformers': what another test has provoked would come no second time
    generation = json.loads((stock / "generation_config.json").read_text())
    (stock / "generation_config.json").write_text(json.dumps(generation | {"num_beams": 4, "length_penalty": 0.2}))
    with caplog.at_level(logging.WARNING):
        ours, theirs = pair(stock)
        assert_same(theirs, ours)
        assert theirs.translate(TEXTS) != theirs.translate(TEXTS, num_beams=1)
    assert not caplog.records
