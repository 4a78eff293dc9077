"""The stock Marians of the Hub, as Helsinki-NLP has them there: sentencepiece, a `<pad>` with a logit, `vocab.json`."""

import json
from pathlib import Path

import pytest
import sentencepiece
import torch
from toy import random_texts
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

from admin_nmt.decoding.search.forced_decoding import target_log_probs
from admin_nmt.decoding.search.generation import search_ids
from admin_nmt.decoding.translator import Translator

SENTENCES = random_texts(12)


def save_tokenizer(folder: Path) -> int:
    """Trains a sentencepiece model, which serves both sides; gives the size of the vocabulary."""
    (folder / "text").write_text("\n".join(SENTENCES))
    options = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(input=str(folder / "text"), model_prefix=str(folder / "both"), **options)
    pieces = [line.split("\t")[0] for line in (folder / "both.vocab").read_text().splitlines()]
    pieces = ["</s>", "<unk>", *(piece for piece in pieces if not piece.startswith("<")), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    spm = {f"{side}_spm": str(folder / "both.model") for side in ("source", "target")}
    MarianTokenizer(vocab=str(folder / "vocab.json"), **spm).save_pretrained(folder)
    return len(pieces)


@pytest.fixture(scope="module")
def marian(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("marian")
    size = save_tokenizer(folder)
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=size, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32, decoder_ffn_dim=32,
        encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=64, init_std=0.5, num_beams=4,
        eos_token_id=0, pad_token_id=size - 1, decoder_start_token_id=size - 1, forced_eos_token_id=0,
    )  # fmt: skip
    model = MarianMTModel(config)
    model.final_logits_bias[0, 0] = 5.0  # so that translations end before their limit
    model.generation_config = GenerationConfig(
        num_beams=4, bad_words_ids=[[size - 1]], max_length=64, renormalize_logits=True, eos_token_id=0,
        pad_token_id=size - 1, decoder_start_token_id=size - 1, forced_eos_token_id=0,
    )  # fmt: skip
    model.save_pretrained(folder)
    return folder


def translated_by_stock(marian: Path) -> dict[str, str]:
    """Sentences with what `generate` makes of them, of those that end before their limit; there conventions differ."""
    tokenizer, model = MarianTokenizer.from_pretrained(marian), MarianMTModel.from_pretrained(marian)
    found = {}
    for sentence in SENTENCES:  # one at a time, as each has a limit of its own
        batch = tokenizer([sentence], return_tensors="pt")
        limit = 2 * batch["input_ids"].shape[1] + 20
        output = model.generate(**batch, max_new_tokens=limit, max_length=None, min_new_tokens=1, early_stopping=True)
        if output.shape[1] <= limit:  # with the start of the decoder
            (found[sentence],) = tokenizer.batch_decode(output, skip_special_tokens=True)
    assert len(found) > len(SENTENCES) / 2 and len(set(found.values())) > 1
    return found


def test_it_translates_as_generate_does_in_our_search(marian, monkeypatch):
    expected = translated_by_stock(marian)
    monkeypatch.setattr(MarianMTModel, "generate", None)
    translator = Translator.from_pretrained(marian, dtype="float32")
    assert translator.translate([*expected]) == [*expected.values()]


def test_scores_are_over_what_may_come_next(marian):
    """And so are those of a pass over the translations."""
    model = MarianMTModel.from_pretrained(marian).eval()
    source = torch.tensor([MarianTokenizer.from_pretrained(marian)(SENTENCES[0])["input_ids"]])
    inputs = {"input_ids": source, "attention_mask": torch.ones_like(source)}
    options = {"num_beams": 4, "nbest": 4, "bad_words_ids": None, "forced_eos_token_id": None, "min_new_tokens": 1}
    found = search_ids(model, source.tolist(), **options)[0]
    assert len(found) == 4
    for one in found[:1] + [row for row in found if row.ids]:
        (again,) = target_log_probs(model, inputs, [[*one.ids, 0]])
        logits = model(**inputs, labels=torch.tensor([[*one.ids, 0]])).logits[0, :, :-1]  # <pad> is the last
        expected = logits.log_softmax(-1).gather(1, torch.tensor([[*one.ids, 0]]).T).sum()
        assert float(again) == pytest.approx(float(expected.detach()), abs=1e-4)


def test_it_runs_in_ctranslate2(marian, tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sentences = [*translated_by_stock(marian)]
    here = Translator.from_pretrained(marian, dtype="float32").translations(sentences)
    there = Translator.from_pretrained(marian, backend="ctranslate2").translations(sentences)
    assert [rows[0].text for rows in there] == [rows[0].text for rows in here]
    assert [rows[0].score for rows in there] == pytest.approx([rows[0].score for rows in here], abs=1e-4)
