"""Text in, text out, from any folder that holds a model and its tokenizers."""

import logging
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from toy import random_texts, toy_tokenizer
from transformers import MarianConfig, MarianMTModel

from admin_nmt.data.tokenization.byte_bpe import save_tokenizers
from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.search import decoding_precision
from admin_nmt.decoding.search.beam_search import ScoredIds
from admin_nmt.decoding.search.ensemble import Ensemble
from admin_nmt.decoding.search.forced_decoding import attention_to_source
from admin_nmt.decoding.search.generation import generate_ids, search_ids
from admin_nmt.decoding.translator import Translation, Translator
from admin_nmt.hub import model_folder
from admin_nmt.hub.model_folder import load_model
from admin_nmt.weights.exporting import export_standard


@pytest.fixture(scope="module")
def tokenizer():
    return toy_tokenizer()


@pytest.fixture
def folder(tmp_path, tiny_model, tokenizer):
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer)
    return tmp_path


def test_a_named_precision_wins_and_is_told(folder, monkeypatch, caplog):
    monkeypatch.setattr(decoding_precision, "can_pack_products", lambda dtype: True)
    monkeypatch.setattr(decoding_precision, "products_dtype", lambda width: torch.bfloat16)
    with caplog.at_level(logging.INFO, logger="admin_nmt"):
        chosen = Translator.from_pretrained(folder, device="cpu")
    assert chosen.precision == "float32 with products of bfloat16"
    assert chosen.precision in caplog.text
    named = Translator.from_pretrained(folder, device="cpu", dtype="float32", attn_implementation="eager")
    assert named.precision == "float32"
    assert named.model.config._attn_implementation == "eager"
    with pytest.raises(ValueError, match="dtype"):
        Translator.from_pretrained(folder, backend="ctranslate2", dtype="float32")


def expected_translations(translator: Translator, texts: list[str], **options) -> list[str]:
    ids = generate_ids(translator.model, translator.tokenizer(texts)["input_ids"], **options)
    return translator.target_tokenizer.batch_decode(ids, skip_special_tokens=True)


def test_translates_each_sentence_in_its_place(folder):
    translator, texts = Translator.from_pretrained(folder, batch_tokens=30, num_beams=2), random_texts(9)
    assert translator.translate(texts) == expected_translations(translator, texts, num_beams=2)
    assert translator.translate(texts, num_beams=1) == expected_translations(translator, texts, num_beams=1)
    assert translator.device == translator.model.device


def test_sentences_may_come_from_a_generator(folder):
    translator, texts = Translator.from_pretrained(folder), random_texts(3)
    assert translator.translate(text for text in texts) == translator.translate(texts)
    assert translator.translate(dict.fromkeys(texts).keys()) == translator.translate(list(dict.fromkeys(texts)))


@pytest.mark.parametrize(
    ("sentences", "kind", "message"),
    [
        ("Ba.", TypeError, "sentences"),
        (["Ba.", None], TypeError, "sentence 2"),
        (["Ba.", "a\udcff"], ValueError, "sentence 2"),
    ],
)
def test_what_is_no_list_of_sentences_is_refused(folder, sentences, kind, message):
    with pytest.raises(kind, match=message):
        Translator.from_pretrained(folder).translate(sentences)


@pytest.mark.parametrize("device", ["abc", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(folder, device):
    with pytest.raises(ValueError, match=f"there is no device '{device}' here"):
        Translator.from_pretrained(folder, device=device)


def test_what_generate_has_no_setting_for_is_refused(folder, shared_translator):
    """At once, and at a call."""
    with pytest.raises(ValueError, match="num_beams"):
        Translator.from_pretrained(folder, num_beam=1)
    with pytest.raises(ValueError, match="subfolder"):
        shared_translator.translate(["Ba."], subfolder="x")
    with pytest.raises(ValueError, match="no_repeat_ngram_size"):
        Translator.from_pretrained(folder, generate={"no_repeat_ngram_sizes": 1})
    with pytest.raises(ValueError, match="revision"):
        Translator.from_pretrained(folder, revision="v2")


def test_a_revision_is_asked_of_the_hub(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(
        model_folder, "snapshot_download", lambda name, revision, **_: asked.append((name, revision)) or folder
    )
    Translator.from_pretrained("user/mine", revision="v2")
    assert asked == [("user/mine", "v2")]


@pytest.mark.parametrize("option", ["target_prefixes", "forbidden"])
def test_a_string_is_not_taken_apart(shared_translator, option):
    with pytest.raises(TypeError, match=option):
        shared_translator.translate(["Ba."], **{option: "B"})


def test_blank_stays_blank(folder):
    translator = Translator.from_pretrained(folder)
    first, second = translator.translate(random_texts(2))
    texts = random_texts(2)
    assert translator.translate(["", texts[0], " \t\u3000", texts[1], "\n"]) == ["", first, "", second, ""]
    assert translator.translate([]) == []


def test_too_long_a_sentence_is_cut_with_a_warning(folder, caplog):
    translator = Translator.from_pretrained(folder)
    positions = translator.model.config.max_position_embeddings
    long = "ba " * 200
    with caplog.at_level(logging.WARNING):
        outputs = translator.translate(["ba", long, long])
    assert "cut 2 of 3 sentences to the model's 64 tokens" in caplog.text
    ids = translator.tokenizer(long)["input_ids"]
    (expected,) = generate_ids(translator.model, [[*ids[: positions - 1], ids[-1]]])
    assert outputs[1:] == [translator.tokenizer.decode(expected, skip_special_tokens=True)] * 2


def test_loads_a_stock_marian_folder(tmp_path, tokenizer):
    size = len(tokenizer)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"vocab_size": size, "pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0}
    MarianMTModel(MarianConfig(**sizes, **heads, **ids, forced_eos_token_id=0)).save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer)
    translator, texts = Translator.from_pretrained(tmp_path), random_texts(4)
    assert type(translator.model) is MarianMTModel
    assert translator.translate(texts) == expected_translations(translator, texts)


def test_loads_a_stock_pegasus_folder(tmp_path, tiny_model, tokenizer):
    model, texts = tiny_model(vocab_size=len(tokenizer), variant="pre_ln"), random_texts(4)
    export_standard(model, tokenizer, tmp_path / "stock")
    translator = Translator.from_pretrained(tmp_path / "stock", num_beams=2)
    assert translator.translate(texts) == Translator(model, tokenizer, num_beams=2).translate(texts)


def test_uses_the_target_tokenizer_where_there_are_two(tmp_path, tiny_model, tokenizer):
    target = toy_tokenizer(seed=1)
    sizes = {"vocab_size": len(tokenizer), "decoder_vocab_size": len(target)}
    tiny_model(**sizes, share_encoder_decoder_embeddings=False).save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer, target)
    translator, texts = Translator.from_pretrained(tmp_path), random_texts(4)
    assert translator.target_tokenizer.get_vocab() == target.get_vocab() != translator.tokenizer.get_vocab()
    assert translator.translate(texts) == expected_translations(translator, texts)


def test_a_tokenizer_of_another_model_is_refused(folder):
    save_tokenizers(folder, toy_tokenizer(), toy_tokenizer(seed=1))
    save_tokenizers(folder, toy_tokenizer(vocab_size=280))
    with pytest.raises(ValueError, match="vocab_size is 300, but its source tokenizer has 280"):
        Translator.from_pretrained(folder)


def shares(count: int = 4) -> list[list[str]]:
    """What each of several clients asks for, in batches of its own."""
    return [random_texts(12, seed=client) for client in range(count)]


@pytest.fixture(params=["final", "stock"])
def shared_translator(request, folder, tmp_path, tokenizer):
    """A translator that several clients share: of a model trained here, and of a stock one."""
    if request.param == "stock":
        export_standard(load_model(folder), tokenizer, tmp_path / "stock")
        folder = tmp_path / "stock"
    return Translator.from_pretrained(folder, batch_tokens=40, num_beams=3, max_new_tokens=12, device="cpu")


def test_threads_share_a_translator(shared_translator, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # else one call translates in several threads of its own
    expected = [shared_translator.translate(texts) for texts in shares()]
    together = threading.Barrier(4, timeout=60)  # at the first batch of each, right before its search
    waiting = threading.local()

    def meet(*args):
        if not hasattr(waiting, "done"):
            waiting.done = together.wait()

    hook = shared_translator.model.get_encoder().register_forward_hook(meet)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(shared_translator.translate, shares())) == expected
        assert list(threads.map(shared_translator.translate, shares())) == expected
    hook.remove()
    assert [shared_translator.translate(texts) for texts in shares()] == expected


def test_a_pickled_translator_translates_alike(shared_translator):
    copied = pickle.loads(pickle.dumps(shared_translator))
    assert [copied.translate(texts) for texts in shares()] == [shared_translator.translate(texts) for texts in shares()]
    assert copied.options == shared_translator.options


def test_translations_are_those_of_the_search_with_scores_and_tokens(folder):
    translator, texts = Translator.from_pretrained(folder, num_beams=4, batch_tokens=40), random_texts(5)
    found = translator.translations([texts[0], " ", *texts[1:]], nbest=3)
    assert found.pop(1) == [Translation("", 0.0, 0.0, [], [])]
    ids = translator.tokenizer(texts)["input_ids"]
    for rows, source, text in zip(search_ids(translator.model, ids, nbest=3, num_beams=4), found, texts, strict=True):
        decoded = translator.target_tokenizer.batch_decode([row.ids for row in rows], skip_special_tokens=True)
        assert [one.text for one in source] == list(dict.fromkeys(decoded))
        assert source[0].log_prob == pytest.approx(rows[0].log_prob, abs=1e-3)
        assert source[0].score == pytest.approx(source[0].log_prob / (len(source[0].tokens) + 1), abs=1e-4)
        assert "".join(source[0].source_tokens).removeprefix(" ") == text
        assert all(len(one.tokens) == len(row.ids) for one, row in zip(source[:1], rows[:1], strict=True))
    assert translator.translate(texts) == [rows[0].text for rows in found]


def test_translations_of_one_text_count_once_with_the_best_score(folder, tokenizer):
    translator = Translator.from_pretrained(folder)
    whole, cut = tokenizer("ba do")["input_ids"][:-1], tokenizer.convert_tokens_to_ids([*"ĠbaĠdo"])
    rows = [ScoredIds(whole, -0.1, -0.5), ScoredIds(cut, -0.2, -0.6), ScoredIds(cut[:3], -0.3, -0.7)]
    translator.search_ids = lambda ids, **options: [rows]
    (found,) = translator.translations(["ba"], nbest=3)
    assert [(one.text, one.score) for one in found] == [("ba do", -0.1), ("ba", -0.3)]


def test_attention_comes_with_each_translation(folder):
    translator, texts = Translator.from_pretrained(folder, num_beams=3), ["", *random_texts(3)]
    blank, *found = translator.translations(texts, nbest=2, alignment_layer=0)
    assert blank[0].alignment() == []
    for rows, text in zip(found, texts[1:], strict=True):
        source = translator.tokenizer(text)["input_ids"]
        for one in rows:
            assert one.attention.shape == (len(one.tokens), len(source) - 1)
        (best,) = search_ids(translator.model, [source], num_beams=3)[0]
        (expected,) = attention_to_source(translator.model, [source], [best.ids], 0)
        assert rows[0].attention == pytest.approx(expected[:, :-1], abs=1e-5)
    with pytest.raises(ValueError, match="alignment_layer"):
        translator.translations(texts)[1][0].alignment()


def test_an_alignment_goes_from_words_to_words():
    """The attention to the pieces of a source word counts together, and space alone is no word."""
    source, target = [" a", " b", "c", " ", " d."], [" x", "y", " ", " z"]
    attention = np.array([[0.3, 0.2, 0.2, 0.1, 0.2], [0.3, 0.2, 0.2, 0.1, 0.2], [1, 0, 0, 0, 0], [0, 0, 0, 0.6, 0.4]])
    assert Translation("xy  z", 0, 0, target, source, attention).alignment() == [(1, 0), (2, 1)]
    behind = Translation(
        "xy z", 0, 0, ["x", "y ", "z "], ["a ", "b", "c ", "d. "], attention[[0, 1, 3]][:, [0, 1, 2, 4]]
    )
    assert behind.alignment() == [(1, 0), (2, 1)]


def test_translations_begin_with_their_prefixes(folder):
    translator, texts = Translator.from_pretrained(folder, num_beams=2), random_texts(3)
    prefixes = ["Ba do", " ki", ""]
    found = translator.translate([*texts, ""], target_prefixes=[*prefixes, "ba"])
    assert found[0].startswith("Ba do")
    assert found[1].startswith("ki")
    assert found[2:] == [translator.translate(texts[2:])[0], ""]
    with pytest.raises(ValueError, match="target prefixes"):
        translator.translate(texts, target_prefixes=["a"])


def test_forbidden_words_are_in_no_translation(folder):
    translator, texts = Translator.from_pretrained(folder, num_beams=3, max_new_tokens=8), random_texts(6)

    def words(results: list[list[Translation]]) -> set[str]:
        return {word for rows in results for one in rows for word in re.findall(r"\w+", one.text)}

    written = sorted(words(translator.translations(texts, nbest=3)))
    found = translator.translations(texts, nbest=3, forbidden=written)
    assert written
    assert not words(found) & set(written)
    again = Translator.from_pretrained(folder, num_beams=3, max_new_tokens=8, forbidden=written)
    assert again.translate(texts) == [rows[0].text for rows in found]
    with pytest.raises(ValueError, match="forbidden"):
        translator.translate(texts, forbidden=[" "])


def test_several_folders_are_an_ensemble(folder, tmp_path, tiny_model, tokenizer):
    tiny_model(vocab_size=len(tokenizer), variant="pre_ln").save_pretrained(tmp_path / "other")
    save_tokenizers(tmp_path / "other", tokenizer)
    both, texts = Translator.from_pretrained([folder, tmp_path / "other"], num_beams=2), random_texts(4)
    models = [Translator.from_pretrained(path).model for path in (folder, tmp_path / "other")]
    assert both.translate(texts) == Translator(Ensemble(models), tokenizer, num_beams=2).translate(texts)
    drawn = both.translate(texts, sampling=Sampling(seed=3))
    assert drawn == both.translate(texts, sampling=Sampling(seed=3), num_beams=1) != both.translate(texts)
    with pytest.raises(ValueError, match="backend"):
        Translator.from_pretrained([folder, folder], backend="ctranslate2")
    save_tokenizers(tmp_path / "other", toy_tokenizer(seed=1))
    with pytest.raises(ValueError, match=f"{folder} and .*source"):
        Translator.from_pretrained([folder, tmp_path / "other"])


def test_a_tokenizer_with_a_state_is_asked_by_one_thread_at_a_time(shared_translator):
    """Marian's reads target text in another state than source text."""

    class Switching:
        is_fast, inside = False, 0

        def __getattr__(self, name: str):
            return getattr(shared_translator.tokenizer, name)

        def __call__(self, *args, **kwargs):
            self.inside += 1
            assert self.inside == 1
            threading.Event().wait(0.02)
            found = shared_translator.tokenizer(*args, **kwargs)
            self.inside -= 1
            return found

    translator = Translator(shared_translator.model, Switching(), num_beams=1)
    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(translator.translate, texts, target_prefixes=["a"] * len(texts)) for texts in shares()]
        assert all(job.result() for job in jobs)


def test_a_long_prefix_is_counted_among_all_sentences(shared_translator):
    with pytest.raises(ValueError, match="the prefix of 'b' has"):
        shared_translator.translate(["", "a", "b"], target_prefixes=["", "", "a b c " * 9], max_new_tokens=3)
