"""Ids of many texts at once are those that the tokenizer gives to each."""

import pickle
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from admin_nmt.data.tokenization import text_encoding
from admin_nmt.data.tokenization.byte_bpe import train_tokenizer
from admin_nmt.data.tokenization.text_encoding import PlainEncoder, WordEncoder, text_encoders
from admin_nmt.data.tokenization.word_cutting import cut

# A space of each kind, what Python alone takes for one, letters, marks, digits, punctuation, a special token.
STRETCHES = [*"  \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2003\u2028\u202f\u3000\u180e\u200b\ufeff\x00", "  ", "   ",
             *"aäÜß1²½Ⅷ.,'’-_=Ġ", "e\u0301", "हि", "中文", "😀", "</s>", "<bt>", "word", "words", "3.14"]  # fmt: skip
TEXTS = st.lists(st.sampled_from(STRETCHES) | st.text(max_size=2), max_size=12).map("".join)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Its merges join spaces of every kind, so that it shows where they were cut."""
    spaces = ["a" + one + other + "b" for one in STRETCHES[:24] for other in STRETCHES[:24]] * 3
    return train_tokenizer(["word words wording 3.14 </s> Ünder", *spaces] * 2, 600, tags=["<bt>"])


def text_encoder(tokenizer):
    return text_encoders(tokenizer, tokenizer)[1]


def ids_of(encode, texts, prefix=()) -> list[list[int]]:
    ids, lengths = encode(pa.array(texts, pa.string()), prefix)
    assert ids.dtype == np.int32
    return [part.tolist() for part in np.split(ids, lengths.cumsum()[:-1])] if texts else []


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=6))
def test_words_have_the_ids_that_they_have_in_the_text(tokenizer, texts):
    encode = text_encoder(tokenizer)
    assert isinstance(encode, WordEncoder)
    expected = [[7, 8, *ids] for ids in tokenizer(texts)["input_ids"]]
    assert ids_of(encode, texts, [7, 8]) == expected
    assert ids_of(encode, texts[::-1], [7, 8]) == expected[::-1], "what it remembers is wrong"


def test_every_character_among_spaces(tokenizer):
    """All that Python and Unicode of any version may judge differently."""
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    texts = [f"a {c}  {c} b{c} {c}1" for c in characters if c.isspace() or ord(c) < 0x3000 or ord(c) % 97 == 0]
    assert ids_of(text_encoder(tokenizer), texts) == tokenizer(texts)["input_ids"]


def test_words_that_are_forgotten(tokenizer, monkeypatch):
    monkeypatch.setattr(text_encoding, "KNOWN_WORDS", 3)
    encode = text_encoder(tokenizer)
    for texts in (["one two", "", "three four five"], ["two six"], ["one", " "]):
        assert ids_of(encode, texts) == tokenizer(texts)["input_ids"]
    again = pickle.loads(pickle.dumps(encode))
    assert ids_of(again, ["seven two"]) == tokenizer(["seven two"])["input_ids"]


def test_no_texts(tokenizer):
    for encode in (text_encoder(tokenizer), PlainEncoder(tokenizer, of_target=False)):
        ids, lengths = encode(pa.array([], pa.string()), [1])
        assert (len(ids), len(lengths)) == (0, 0)


def test_a_slice_of_a_column_is_encoded_as_such(tokenizer):
    texts = ["one two", "", "three  four", "five "]
    encode = text_encoder(tokenizer)
    ids, lengths = encode(pa.array(texts).slice(1, 2))
    assert ids.tolist() == [one for row in tokenizer(texts[1:3])["input_ids"] for one in row]
    assert lengths.tolist() == [1, len(ids) - 1]


def changed(name):
    """A tokenizer that differs from those of byte_bpe in one thing."""
    tokenizer = train_tokenizer(["some words of text"] * 9, 300)
    if name == "normalizer":
        tokenizer.backend_tokenizer.normalizer = None
    if name == "dropout":
        tokenizer.backend_tokenizer.model.dropout = 0.5
    if name == "special tokens in text":
        tokenizer.split_special_tokens = False
    if name == "added token":
        tokenizer.backend_tokenizer.add_tokens([AddedToken("words of")])
    return tokenizer


@pytest.mark.parametrize("name", ["normalizer", "dropout", "special tokens in text", "added token"])
def test_other_tokenizers_see_whole_texts(name):
    tokenizer = changed(name)
    encode = text_encoder(tokenizer)
    assert isinstance(encode, PlainEncoder)
    if name != "dropout":
        texts = ["some words of </s> text", ""]
        assert ids_of(encode, texts, [5]) == [[5, *ids] for ids in tokenizer(texts)["input_ids"]]


def test_cut():
    texts = ["a b a", "", "  two  spaces", "end ", " ", "a\u00a0 b"]
    codes, lengths, words = cut(pa.array(texts))
    rows = np.split(np.array(words, dtype=object)[codes], lengths.cumsum()[:-1])
    assert [row.tolist() for row in rows] == [
        ["a", "b", "a"], [], ["  two", " spaces"], ["end", ""], [" "], ["a\u00a0 b"]
    ]  # fmt: skip
