"""Text in, text out, from any folder that holds a model and its tokenizers."""

import asyncio
import logging
import multiprocessing
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from toy import random_texts, toy_tokenizer
from transformers import MarianConfig, MarianMTModel

from admin_nmt.decoding.translator import Translator
from admin_nmt.exporting import export_standard
from admin_nmt.folders.model_folder import load_model
from admin_nmt.search.generation import generate_ids
from admin_nmt.tokenization.byte_bpe import save_tokenizers


@pytest.fixture(scope="module")
def tokenizer():
    return toy_tokenizer()


@pytest.fixture
def folder(tmp_path, tiny_model, tokenizer):
    tiny_model(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer)
    return tmp_path


def expected_translations(translator: Translator, texts: list[str], **options) -> list[str]:
    ids = generate_ids(translator.model, translator.tokenizer(texts)["input_ids"], **options)
    return translator.target_tokenizer.batch_decode(ids, skip_special_tokens=True)


def test_translates_each_sentence_in_its_place(folder):
    translator, texts = Translator.from_pretrained(folder, max_tokens=30, num_beams=2), random_texts(9)
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
        ("Ba.", TypeError, "sentences is a single string; give a list of sentences"),
        (["Ba.", None], TypeError, "sentence 2 is None; give a string"),
        (["Ba.", b"Ba."], TypeError, "sentence 2 is b'Ba.'; give a string"),
        (["Ba.", "a\udcff"], ValueError, r"sentence 2, 'a\\udcff', holds half a surrogate pair"),
    ],
)
def test_what_is_no_list_of_sentences_is_refused(folder, sentences, kind, message):
    with pytest.raises(kind, match=message):
        Translator.from_pretrained(folder).translate(sentences)


def test_blank_stays_blank(folder):
    translator = Translator.from_pretrained(folder)
    first, second = translator.translate(random_texts(2))
    texts = random_texts(2)
    assert translator.translate(["", texts[0], " \t\u3000", texts[1], "\n"]) == ["", first, "", second, ""]


def test_blank_input_does_not_ask_the_model(folder):
    translator = Translator.from_pretrained(folder)
    translator.model.forward = None
    assert translator.translate(["", "  "]) == ["", ""]
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


def test_a_single_string_is_refused(folder):
    with pytest.raises(TypeError, match="give a list of sentences"):
        Translator.from_pretrained(folder).translate("ba do.")


def shares(count: int = 4) -> list[list[str]]:
    """What each of several clients asks for, in batches of its own."""
    return [random_texts(12, seed=client) for client in range(count)]


@pytest.fixture(params=["final", "stock"])
def shared_translator(request, folder, tmp_path, tokenizer):
    """A translator that several clients share: of a model trained here, and of a stock one."""
    if request.param == "stock":
        export_standard(load_model(folder), tokenizer, tmp_path / "stock")
        folder = tmp_path / "stock"
    return Translator.from_pretrained(folder, max_tokens=40, num_beams=3, max_new_tokens=12, device="cpu")


def test_threads_share_a_translator(shared_translator):
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


def test_tasks_of_asyncio_share_a_translator(shared_translator):
    async def serve() -> list[list[str]]:
        loop, translate = asyncio.get_running_loop(), shared_translator.translate
        in_executor = [loop.run_in_executor(None, translate, texts) for texts in shares()[:2]]
        return await asyncio.gather(*in_executor, *(asyncio.to_thread(translate, texts) for texts in shares()[2:]))

    expected = [shared_translator.translate(texts) for texts in shares()]
    assert asyncio.run(serve()) == expected


def test_a_pickled_translator_translates_alike(shared_translator):
    copied = pickle.loads(pickle.dumps(shared_translator))
    assert [copied.translate(texts) for texts in shares()] == [shared_translator.translate(texts) for texts in shares()]
    assert copied.options == shared_translator.options
    assert copied.max_tokens == shared_translator.max_tokens


@pytest.mark.slow
def test_processes_that_are_spawned_get_a_translator(shared_translator):
    expected = [shared_translator.translate(texts) for texts in shares()]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        assert list(processes.map(shared_translator.translate, shares())) == expected
