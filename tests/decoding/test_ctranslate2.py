"""CTranslate2 as a backend: its stock converter reads our stock folders, and translations are the same."""

import copy
import functools
import json
import math
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from toy import SHIFT, bit_flipped, learn_to_copy, random_texts, randomised, small_config
from transformers import AutoTokenizer, PreTrainedModel

from admin_nmt import AdminForConditionalGeneration, Translator
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.decoding import ctranslate2_backend
from admin_nmt.decoding.ctranslate2_backend import export_ctranslate2
from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.scoring import score_pairs
from admin_nmt.weights.exporting import ExportError, export_standard

ctranslate2 = pytest.importorskip("ctranslate2")
TEXTS = random_texts(24, seed=8)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of converted models."""
    monkeypatch.setattr(ctranslate2_backend, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def trained(tokenizer):
    """Gives a model of a variant that learnt to copy, so that its translations end, and not at once.

    CTranslate2 takes a first end of sentence out of the softmax, which changes each score by the logarithm of what it
    leaves, and two hypotheses of different lengths by different amounts.
    """

    @functools.cache
    def build(variant: str) -> AdminForConditionalGeneration:
        torch.manual_seed(SHIFT)
        model = randomised(AdminForConditionalGeneration(small_config(variant=variant, vocab_size=len(tokenizer))))
        return learn_to_copy(model, tokenizer, tokenizer, random_texts(24, seed=7), updates=80)

    return lambda variant="admin": copy.deepcopy(build(variant))


@pytest.fixture(scope="module")
def exported(trained, tokenizer, tmp_path_factory) -> Path:
    """A stock Marian folder."""
    folder = tmp_path_factory.mktemp("exported") / "stock"
    export_standard(trained(), tokenizer, folder)
    return folder


@pytest.fixture
def stock(exported, tmp_path) -> Path:
    """The same, which a test may change."""
    return shutil.copytree(exported, tmp_path / "stock")


def pair(folder: Path, **options) -> tuple[Translator, Translator]:
    """A model by torch and by CTranslate2."""
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


def tied(model: PreTrainedModel, sources: list[list[int]], found: list[list[int]]) -> set[int]:
    """Sentences for which a greedy search had two best tokens whose logits differ by rounding alone; they are few."""
    ties = set()
    for i, (source, ids) in enumerate(zip(sources, found, strict=True)):
        start = torch.tensor([[model.config.decoder_start_token_id, *ids]])
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=start).logits[0]
        best = logits.topk(2).values
        if (best[:, 0] - best[:, 1]).min() < 1e-4:
            ties.add(i)
    assert len(ties) <= len(sources) // 8
    return ties


def test_layouts_of_threads_give_the_same_in_the_same_order(stock, monkeypatch):
    plain = Translator.from_pretrained(stock, device="cpu", backend="ctranslate2", batch_tokens=40)
    monkeypatch.setattr(ctranslate2_backend, "thread_layout", lambda *arguments: (3, 1))
    other = Translator.from_pretrained(stock, device="cpu", backend="ctranslate2", batch_tokens=40)
    assert other.model.model.num_translators == 3
    assert other.translate(TEXTS) == plain.translate(TEXTS)


def assert_same(theirs: Translator, ours: Translator, texts: list[str] = TEXTS) -> None:
    """Compare translations; of a beam search those that end before their limit, of a greedy one those without ties."""
    pairs = dict(zip(texts, zip(theirs.translate(texts), ours.translate(texts), strict=True), strict=True))
    asked = [text for text in texts if text.strip()]
    sources = [ids[:-1][:63] + ids[-1:] for ids in ours.tokenizer(asked)["input_ids"]]
    given = ours.options.search_arguments()
    outputs = [best_ids(system, sources, **given) for system in (theirs, ours)]
    left_out = tied(ours.model, sources, outputs[1]) if ours.options.num_beams == 1 else cut(sources, *outputs)
    for index in left_out:
        pairs.pop(asked[index], None)  # the same sentence may come twice
    assert {text: found for text, (found, _) in pairs.items()} == {text: wanted for text, (_, wanted) in pairs.items()}


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 1},
        {"num_beams": 5},
        {"num_beams": 4, "length_penalty": 0.0, "batch_tokens": 50},
        {"num_beams": 3, "length_penalty": 2.0, "batch_tokens": 20},
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


@pytest.mark.parametrize(("variant", "quantization"), [("admin", None), ("pre_ln", None), ("stock", "int8")])
def test_an_exported_folder_runs_without_this_package(trained, tokenizer, stock, tmp_path, variant, quantization):
    """By greedy and by beam search it gives the same tokens as the search here; int8 gives most of them."""
    folder = stock
    if variant != "stock":
        trained(variant).save_pretrained(folder := tmp_path / "trained")
        save_tokenizers(folder, tokenizer)
    same = export_ctranslate2(folder, tmp_path / "out", quantization)
    theirs, engine = AutoTokenizer.from_pretrained(tmp_path / "out"), ctranslate2.Translator(str(tmp_path / "out"))
    assert engine.compute_type == ("int8_float32" if quantization else "float32")
    ours, sources = Translator.from_pretrained(folder, device="cpu", dtype="float32"), theirs(TEXTS)["input_ids"]
    for beams in (1,) if quantization else (1, 5):
        options = {"beam_size": beams, "max_decoding_length": 60, "return_end_token": True}
        results = engine.translate_batch([theirs.convert_ids_to_tokens(ids) for ids in sources], **options)
        found = [theirs.convert_tokens_to_ids(result.hypotheses[0]) for result in results]
        found = [[token for token in ids if token != theirs.eos_token_id] for ids in found]
        expected = best_ids(ours, sources, num_beams=beams)
        left_out = cut(sources, found, expected) | (tied(ours.model, sources, expected) if beams == 1 else set())
        ended = [i for i in range(len(TEXTS)) if i not in left_out]
        equal = [found[i] == expected[i] for i in ended]
        assert len({len(expected[i]) for i in ended}) > 3
        assert same == 1 and all(equal) if quantization is None else same > 0.5 and sum(equal) > 0.7 * len(equal)


def test_an_export_of_other_translations_leaves_nothing(stock, tiny_model, tokenizer, tmp_path, monkeypatch):
    export_standard(tiny_model(vocab_size=len(tokenizer)), tokenizer, tmp_path / "other")
    export_ctranslate2(tmp_path / "other", tmp_path / "converted")
    assert ctranslate2_backend._same_translations(stock, tmp_path / "converted") < 1
    monkeypatch.setattr(ctranslate2_backend, "_same_translations", lambda *_: 0.95)
    with pytest.raises(ExportError):
        export_ctranslate2(stock, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert export_ctranslate2(stock, tmp_path / "out", "int8") == 0.95


def test_a_final_model_is_exported_on_the_way_and_keeps_its_settings(trained, tokenizer, tmp_path):
    model = trained()
    model.generation_config.update(num_beams=4, length_penalty=0.2)
    model.save_pretrained(tmp_path / "final")
    save_tokenizers(tmp_path / "final", tokenizer)
    ours, theirs = pair(tmp_path / "final")
    assert_same(theirs, ours)
    assert theirs.translate(TEXTS) != theirs.translate(TEXTS, num_beams=1)


def test_a_pickled_translator_loads_its_folder_again(stock, monkeypatch):
    monkeypatch.chdir(stock.parent)
    ours = Translator.from_pretrained(stock.name, backend="ctranslate2", compute_type="int8", device="cpu", num_beams=2)
    monkeypatch.chdir("/")
    copied = pickle.loads(pickle.dumps(ours))
    assert copied.model.model.compute_type == ours.model.model.compute_type
    assert copied.translate(TEXTS) == ours.translate(TEXTS)


def test_is_converted_once_for_each_content(stock, cache):
    """And again where the conversion was damaged."""
    first = Translator.from_pretrained(stock, backend="ctranslate2").model.converted
    content = {path.name: path.read_bytes() for path in first.iterdir()}
    bit_flipped(first / "model.bin")
    assert Translator.from_pretrained(stock, backend="ctranslate2").model.converted == first
    assert {path.name: path.read_bytes() for path in first.iterdir()} == content
    written = (first / "model.bin").stat().st_mtime_ns
    int8 = Translator.from_pretrained(stock, backend="ctranslate2", compute_type="int8", device="cpu").model
    assert int8.converted == first and int8.model.compute_type.startswith("int8")
    assert (first / "model.bin").stat().st_mtime_ns == written
    change_weights(stock, lambda model: model.model.shared.weight[5].add_(1))
    assert Translator.from_pretrained(stock, backend="ctranslate2").model.converted != first
    assert len(list(cache.iterdir())) == 2


@torch.no_grad()
def change_weights(folder: Path, change: Callable[[PreTrainedModel], object]) -> None:
    model = Translator.from_pretrained(folder).model
    change(model)
    model.save_pretrained(folder)


def test_weights_that_are_not_finite_are_refused(stock):
    change_weights(stock, lambda model: model.model.decoder.layers[0].fc1.weight[0, 0].fill_(math.nan))
    with pytest.raises(ValueError, match=r"layers\.0\.fc1"):
        Translator.from_pretrained(stock, backend="ctranslate2")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"variant": "dlcl_pre_ln"}, "dlcl_pre_ln"),
        ({"share_encoder_decoder_embeddings": False}, "two vocabularies"),
        ({"model_type": "bart"}, "bart"),
    ],
)
def test_a_model_that_has_no_counterpart_is_refused(tiny_model, tokenizer, tmp_path, cache, fields, named):
    tiny_model(vocab_size=len(tokenizer), **fields).save_pretrained(tmp_path / "final")
    save_tokenizers(tmp_path / "final", tokenizer)
    config = json.loads((tmp_path / "final" / "config.json").read_text())
    (tmp_path / "final" / "config.json").write_text(json.dumps(config | fields))
    with pytest.raises(ValueError, match=named):
        Translator.from_pretrained(tmp_path / "final", backend="ctranslate2")
    assert not cache.exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sampling": Sampling()}, "sampling"),
        ({"target_prefixes": ["ba"]}, "target prefix"),
        ({"forbidden": ["ba"]}, "forbidden text"),
        ({"alignment_layer": -1}, "alignment"),
        ({"generate": {"early_stopping": False}}, "early_stopping"),
        ({"generate": {"suppress_tokens": [4]}}, "suppress_tokens"),
        ({"generate": {"decoder_start_token_id": 3}}, "decoder_start_token_id"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_setting_is_silently_ignored(stock, options, named):
    with pytest.raises(ValueError, match=named):
        Translator.from_pretrained(stock, backend="ctranslate2", num_beams=2).translations(["ba do."], **options)
