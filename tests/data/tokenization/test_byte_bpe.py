from errno import ENOSPC

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, MarianConfig, PreTrainedTokenizerFast

from admin_nmt.data.tokenization.byte_bpe import SMALLEST_VOCABULARY, train_tokenizer, with_pad_at, with_tags
from admin_nmt.data.tokenization.tokenizer_folder import check_tokenizer, load_tokenizers, save_tokenizers

LINES = [f"The {size} dog has {n} bones. Der Hund hat {n} Knochen." for size in ("small", "big") for n in range(100)]
AWKWARD = [
    "",
    " ",
    "  leading and trailing  ",
    "two  spaces\tand\r\n\nlines",
    "</s>",
    "a </s> b<pad> <unk>c",
    "Ġhello Ċ",
    "e\u0301 is not é",
    "👩‍👩‍👧 हिन्दी 中文 \u200b\ufeff",
    "\x00\x7f\U0010ffff",
    "1,234.50 ½ ²",
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(LINES, vocab_size=300)


@pytest.fixture(scope="module")
def reloaded(tokenizer, tmp_path_factory) -> PreTrainedTokenizerFast:
    """Saved, loaded, saved and loaded again: nothing may live only in the object that was trained."""
    for folder in (tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")):
        tokenizer.save_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer


def assert_round_trip(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer(text)["input_ids"]
    assert ids[-1] == 0
    assert not {0, 1, len(tokenizer) - 1} & set(ids[:-1]), "a special token was read out of the text"
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.decode(ids, skip_special_tokens=False) == text + "</s>"


@given(text=st.text() | st.lists(st.sampled_from([*AWKWARD, "dog", " ", "</s", ">"])).map("".join))
def test_round_trip_of_any_text(tokenizer, reloaded, text):
    for one in (text, *AWKWARD):
        assert_round_trip(tokenizer, one)
        assert_round_trip(reloaded, one)
        assert reloaded(one)["input_ids"] == tokenizer(one)["input_ids"]


def test_layout_is_marians(reloaded):
    tokenizer = reloaded
    assert len(tokenizer) == tokenizer.vocab_size == 300
    assert tokenizer.convert_tokens_to_ids(["</s>", "<unk>", "<pad>"]) == [0, 1, 299]
    assert (tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id) == (0, 1, 299)
    assert sorted(tokenizer.get_vocab().values()) == list(range(300))
    assert set(pre_tokenizers.ByteLevel.alphabet()) <= set(tokenizer.get_vocab())


def test_words_share_their_pieces_wherever_they_stand(tokenizer):
    assert tokenizer.tokenize("bones dog") == tokenizer.tokenize("bones") + tokenizer.tokenize("dog")


def test_training_is_deterministic_and_reads_its_texts_once(tokenizer):
    again = train_tokenizer(iter(LINES), vocab_size=300)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_vocabulary_without_room_for_all_bytes_is_refused():
    assert len(train_tokenizer([], SMALLEST_VOCABULARY)) == SMALLEST_VOCABULARY
    with pytest.raises(ValueError, match="vocab_size"):
        train_tokenizer(LINES, vocab_size=SMALLEST_VOCABULARY - 1)


def test_separate_vocabularies(tokenizer, tmp_path):
    target = train_tokenizer(LINES, vocab_size=280)
    save_tokenizers(tmp_path, tokenizer, target)
    assert [len(loaded) for loaded in load_tokenizers(tmp_path)] == [300, 280]
    assert len(AutoTokenizer.from_pretrained(tmp_path)) == 300

    save_tokenizers(tmp_path, tokenizer)
    source, target = load_tokenizers(tmp_path)
    assert source is target and len(source) == 300


def test_tags_join_a_vocabulary(tokenizer, tmp_path):
    tagged = with_tags(with_tags(tokenizer, ["<bt>"]), ["<bt>", "<web>"])
    save_tokenizers(tmp_path, tagged)
    tagged, _ = load_tokenizers(tmp_path)
    size = len(tokenizer)
    assert len(tagged) == size + 2 and tagged.pad_token_id == size + 1
    assert tagged.convert_tokens_to_ids(["<bt>", "<web>"]) == [size - 1, size]
    for text in (*AWKWARD, *LINES[:5], "<bt> <web>"):
        assert tagged(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert tagged.decode([size - 1, *tokenizer("a dog")["input_ids"]], skip_special_tokens=True) == "a dog"
    assert with_tags(tagged, ["<web>"]) is tagged


def test_padding_elsewhere_changes_nothing_but_ids(tokenizer, tmp_path):
    """<pad> moves to where the other vocabulary of a model ends, whose <pad> it is, too; tags stay in front of it."""
    assert with_pad_at(tokenizer, 299) is tokenizer
    moved = with_pad_at(with_tags(tokenizer, ["<bt>"]), 280)
    save_tokenizers(tmp_path, moved)
    moved, _ = load_tokenizers(tmp_path)
    assert len(moved) == 301 and moved.pad_token_id == 280
    for text in (*AWKWARD, *LINES[:5], "<bt>"):
        ids = moved(text)["input_ids"]
        assert 280 not in ids
        assert moved.convert_ids_to_tokens(ids) == tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])
        assert moved.decode(ids, skip_special_tokens=True) == text
    assert moved([LINES[0], "a"], padding=True)["input_ids"][1][-1] == 280
    tagged = with_tags(moved, ["<web>"])
    assert (tagged.pad_token_id, tagged.convert_tokens_to_ids("<web>"), len(tagged)) == (281, 280, 302)
    assert tagged.convert_tokens_to_ids("<bt>") == moved.convert_tokens_to_ids("<bt>") + 1 == 301


def test_a_full_disk_is_told_as_the_system_does(tmp_path, monkeypatch):
    """tokenizers raises a bare Exception."""
    tokenizer = train_tokenizer(["a b c"] * 9, 300)
    (tmp_path / "tokenizer.json").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as error:
        save_tokenizers(tmp_path, tokenizer)
    assert error.value.errno == ENOSPC and error.value.filename == str(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"), [("vocab_size", 301), ("decoder_vocab_size", 301), ("pad_token_id", 0), ("eos_token_id", 2)]
)
def test_check_tokenizer_names_the_field_that_differs(tokenizer, field, value):
    fitting, target = {"vocab_size": 300, "pad_token_id": 299}, field == "decoder_vocab_size"
    check_tokenizer(tokenizer, MarianConfig(**fitting), target=target)
    with pytest.raises(ValueError, match=field):
        check_tokenizer(tokenizer, MarianConfig(**fitting | {field: value}), target=target)
