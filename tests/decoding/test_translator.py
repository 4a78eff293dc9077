"""Text in, text out, from any model_folder that holds a model and its tokenizers."""

import logging
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from toy import random_texts, toy_tokenizer

from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.decoding.options import Sampling
from admin_nmt.decoding.search.ensemble import Ensemble
from admin_nmt.decoding.search.forced_decoding import attention_to_source
from admin_nmt.decoding.search.generation import generate_ids, search_ids
from admin_nmt.decoding.translator import Translation, Translator


def expected_translations(translator: Translator, texts: list[str], **options) -> list[str]:
    ids = generate_ids(translator.model, translator.tokenizer(texts)["input_ids"], **options)
    return translator.target_tokenizer.batch_decode(ids, skip_special_tokens=True)


def test_translates_each_sentence_in_its_place(model_folder):
    """A blank one stays blank, and weights that change later are followed."""
    translator, texts = Translator.from_pretrained(model_folder, batch_tokens=30, num_beams=2), random_texts(9)
    found = translator.translate(["", texts[0], " \t\u3000", *texts[1:], "\n"])
    assert [found.pop(index) for index in (-1, 2, 0)] == ["", "", ""]
    assert found == expected_translations(translator, texts, num_beams=2)
    assert translator.translate([]) == []
    weights = {name: tensor.flip(0) for name, tensor in translator.model.state_dict().items()}
    translator.model.load_state_dict(weights)
    other = translator.translate(texts, num_beams=1)
    assert other == expected_translations(translator, texts, num_beams=1) != found


@pytest.mark.parametrize(
    ("options", "kind", "named"),
    [
        ({"sentences": "Ba."}, TypeError, "sentences"),
        ({"sentences": ["Ba.", "a\udcff"]}, ValueError, "sentence 2"),
        ({"num_beam": 2}, TypeError, "num_beam"),
        ({"generate": {"no_repeat_ngram_sizes": 1}}, ValueError, "no_repeat_ngram_size"),
        ({"target_prefixes": ["a", "b"]}, ValueError, "target prefixes"),
        ({"target_prefixes": ["a b c " * 9], "max_new_tokens": 3}, ValueError, "prefix"),
        ({"forbidden": "B"}, TypeError, "forbidden"),
    ],
)
def test_wrong_arguments_are_named(model_folder, options, kind, named):
    translator = Translator.from_pretrained(model_folder)
    with pytest.raises(kind, match=named):
        translator.translate(**{"sentences": ["Ba."]} | options)


def test_a_device_that_is_not_there_and_a_tokenizer_of_another_model_are_refused(model_folder):
    with pytest.raises(ValueError, match="cuda:99"):
        Translator.from_pretrained(model_folder, device="cuda:99")
    save_tokenizers(model_folder, toy_tokenizer(vocab_size=280))
    with pytest.raises(ValueError, match="vocab_size"):
        Translator.from_pretrained(model_folder)


def test_a_dtype_is_that_of_the_weights(model_folder):
    translator = Translator.from_pretrained(model_folder, dtype="bfloat16")
    assert translator.precision == "bfloat16" and {one.dtype for one in translator.model.parameters()} == {
        torch.bfloat16
    }
    assert len(translator.translate(random_texts(2))) == 2
    assert Translator.from_pretrained(model_folder).precision == "float32"


def test_too_long_a_sentence_is_cut_with_a_warning(model_folder, caplog):
    translator = Translator.from_pretrained(model_folder)
    positions = translator.model.config.max_position_embeddings
    long = "ba " * 200
    with caplog.at_level(logging.WARNING):
        outputs = translator.translate(["ba", long, long])
    assert "cut 2 of 3 sentences to the model's 64 tokens" in caplog.text
    ids = translator.tokenizer(long)["input_ids"]
    (expected,) = generate_ids(translator.model, [[*ids[: positions - 1], ids[-1]]])
    assert outputs[1:] == [translator.tokenizer.decode(expected, skip_special_tokens=True)] * 2


def test_uses_the_target_tokenizer_where_there_are_two(tmp_path, tiny_model, tokenizer):
    target = toy_tokenizer(seed=1)
    sizes = {"vocab_size": len(tokenizer), "decoder_vocab_size": len(target)}
    tiny_model(**sizes, share_encoder_decoder_embeddings=False).save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer, target)
    translator, texts = Translator.from_pretrained(tmp_path), random_texts(4)
    assert translator.target_tokenizer.get_vocab() == target.get_vocab() != translator.tokenizer.get_vocab()
    assert translator.translate(texts) == expected_translations(translator, texts)


def test_a_pickled_translator_translates_alike(model_folder):
    translator, texts = Translator.from_pretrained(model_folder, batch_tokens=40, num_beams=3), random_texts(12)
    copied = pickle.loads(pickle.dumps(translator))
    assert copied.translate(texts) == translator.translate(texts)
    assert copied.options == translator.options


def test_translations_are_those_of_the_search_with_scores_and_tokens(model_folder):
    translator, texts = Translator.from_pretrained(model_folder, num_beams=4, batch_tokens=40), random_texts(5)
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


def test_attention_comes_with_each_translation(model_folder):
    translator, texts = Translator.from_pretrained(model_folder, num_beams=3), ["", *random_texts(3)]
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


def test_translations_begin_with_their_prefixes(model_folder):
    translator, texts = Translator.from_pretrained(model_folder, num_beams=2), random_texts(3)
    prefixes = ["Ba do", " ki", ""]
    found = translator.translate([*texts, ""], target_prefixes=[*prefixes, "ba"])
    assert found[0].startswith("Ba do")
    assert found[1].startswith("ki")
    assert found[2:] == [translator.translate(texts[2:])[0], ""]


def test_forbidden_words_are_in_no_translation(model_folder):
    translator, texts = Translator.from_pretrained(model_folder, num_beams=3, max_new_tokens=8), random_texts(6)

    def words(results: list[list[Translation]]) -> set[str]:
        return {word for rows in results for one in rows for word in re.findall(r"\w+", one.text)}

    written = sorted(words(translator.translations(texts, nbest=3)))
    found = translator.translations(texts, nbest=3, forbidden=written)
    assert written
    assert not words(found) & set(written)
    again = Translator.from_pretrained(model_folder, num_beams=3, max_new_tokens=8, forbidden=written)
    assert again.translate(texts) == [rows[0].text for rows in found]


def test_several_folders_are_an_ensemble(model_folder, tmp_path, tiny_model, tokenizer):
    tiny_model(vocab_size=len(tokenizer), variant="pre_ln").save_pretrained(tmp_path / "other")
    save_tokenizers(tmp_path / "other", tokenizer)
    both, texts = Translator.from_pretrained([model_folder, tmp_path / "other"], num_beams=2), random_texts(4)
    models = [Translator.from_pretrained(path).model for path in (model_folder, tmp_path / "other")]
    assert both.translate(texts) == Translator(Ensemble(models), tokenizer, num_beams=2).translate(texts)
    drawn = both.translate(texts, sampling=Sampling(seed=3))
    assert drawn == both.translate(texts, sampling=Sampling(seed=3), num_beams=1) != both.translate(texts)
    with pytest.raises(ValueError, match="backend"):
        Translator.from_pretrained([model_folder, model_folder], backend="ctranslate2")
    save_tokenizers(tmp_path / "other", toy_tokenizer(seed=1))
    with pytest.raises(ValueError, match=f"{model_folder} and .*source"):
        Translator.from_pretrained([model_folder, tmp_path / "other"])


def test_threads_share_a_translator_and_ask_its_tokenizer_one_at_a_time(model_folder):
    """A tokenizer may have a state: Marian's reads target text in another one than source text."""
    usual = Translator.from_pretrained(model_folder, batch_tokens=40, num_beams=3, max_new_tokens=12)

    class Switching:
        is_fast, inside = False, 0

        def __getattr__(self, name: str):
            return getattr(usual.tokenizer, name)

        def __call__(self, *args, **kwargs):
            self.inside += 1
            assert self.inside == 1
            threading.Event().wait(0.02)
            found = usual.tokenizer(*args, **kwargs)
            self.inside -= 1
            return found

    shared = Translator(usual.model, Switching(), batch_tokens=40, num_beams=3, max_new_tokens=12)
    parts = [random_texts(4, seed=client) for client in range(4)]
    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(shared.translate, part, target_prefixes=["a"] * 4) for part in parts]
        assert [job.result() for job in jobs] == [usual.translate(part, target_prefixes=["a"] * 4) for part in parts]
