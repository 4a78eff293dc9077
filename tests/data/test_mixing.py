"""Several corpora in one epoch: each as often as it should be, from the files that are there."""

from collections import Counter

import pytest
from datasets import Dataset

from admin_nmt.data.batching import TokenBatchSampler
from admin_nmt.data.mixing import check_tag, mix
from admin_nmt.data.tokenization.byte_bpe import check_tokenizer, load_tokenizers, save_tokenizers, train_tokenizer
from admin_nmt.data.tokenizing import pair_lengths, tokenize

TEXTS = {"real": ["one", "two words", "three more words"], "bt": ["four", "five fives"]}


@pytest.fixture
def tokenizer():
    return train_tokenizer([text for texts in TEXTS.values() for text in texts], 300, tags=["<bt>"])


@pytest.fixture
def parts(tokenizer, tmp_path):
    """An original corpus, and a tagged one."""
    tags = {"real": None, "bt": "<bt>"}
    pairs = {name: Dataset.from_dict({"source": texts, "target": texts}) for name, texts in TEXTS.items()}
    return [tokenize(pairs[name], tokenizer, tokenizer, tag=tags[name], cache_dir=tmp_path) for name in TEXTS]


def test_an_epoch_takes_each_corpus_as_often_as_asked(parts):
    epoch = mix(parts, [3, 1])
    assert epoch["target"][:] == TEXTS["real"] * 3 + TEXTS["bt"]
    sampler = TokenBatchSampler(*pair_lengths(epoch), 64, seed=0)
    taken = Counter(epoch[index]["target"] for batch in sampler for index in batch)
    assert taken == dict.fromkeys(TEXTS["real"], 3) | dict.fromkeys(TEXTS["bt"], 1)


def test_only_tagged_sources_begin_with_the_tag(parts, tokenizer):
    tag = tokenizer.convert_tokens_to_ids("<bt>")
    epoch = mix(parts, [1, 2])
    assert [ids[0] == tag for ids in epoch["input_ids"]] == [False] * 3 + [True] * 4
    assert not any(tag in ids for ids in epoch["labels"])
    assert tokenizer.decode(epoch["input_ids"][3], skip_special_tokens=True) == "four"


def test_a_tag_is_no_text_and_survives_saving(tokenizer, tmp_path, tiny_config):
    tag = tokenizer.convert_tokens_to_ids("<bt>")
    assert tag not in tokenizer("a <bt> b <bt>")["input_ids"]
    assert tokenizer.decode(tokenizer("a <bt> b")["input_ids"], skip_special_tokens=True) == "a <bt> b"
    save_tokenizers(tmp_path, tokenizer)
    loaded, _ = load_tokenizers(tmp_path)
    assert loaded.convert_tokens_to_ids("<bt>") == tag
    assert loaded("a <bt> b")["input_ids"] == tokenizer("a <bt> b")["input_ids"]
    assert (loaded.eos_token_id, loaded.pad_token_id) == (0, len(loaded) - 1)
    check_tokenizer(loaded, tiny_config(vocab_size=len(loaded), pad_token_id=len(loaded) - 1))


@pytest.mark.parametrize("tag", ["bt", "<b t>", "<>", "<_>", "</s>", "<unk>", "<pad>", 3])
def test_what_text_could_spell_is_no_tag(tag):
    with pytest.raises(ValueError, match=r"tag is .*; give letters or digits in angle brackets"):
        check_tag(tag)
