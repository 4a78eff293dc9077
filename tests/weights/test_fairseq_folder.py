"""From the files of a fairseq model to a folder that translates text, and what is said when they do not fit."""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from test_fairseq_weights import CONVENTIONS, EOS, fairseq_checkpoint, logits
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, LogitsProcessorList

from admin_nmt import Translator
from admin_nmt.decoding.search.generation import SentenceLengthLimit
from admin_nmt.hub.model_folder import check_folder
from admin_nmt.weights.fairseq_folder import convert_checkpoint

CODES = "#version: 0.2\na b\nab c</w>\n"
# What masked a folder's name in the reference file has put one byte of the pickle, an opcode, before the mask instead
# of behind it.
MASKED, MENDED = b"radam_fairseqq" + 15 * b"_", b"radam_fairseq" + 15 * b"_" + b"q"


def dictionary(size: int, first: str = "w") -> str:
    """A dictionary for `size` ids, special ones included."""
    return "".join(f"{first}{index} {size - index}\n" for index in range(size - 4))


@pytest.fixture
def files(tiny_model, tmp_path):
    """Writes the files of a tiny model; gives the arguments of `convert_checkpoint` and the model."""

    def write(dicts: Sequence[str], **fields):
        model = tiny_model(**CONVENTIONS, **fields)
        state, args = fairseq_checkpoint(model)
        torch.save({"args": Namespace(**args), "model": state}, tmp_path / "checkpoint.pt")
        (tmp_path / "codes").write_text(CODES)
        paths = [tmp_path / f"dict{index}.txt" for index in range(len(dicts))]
        for path, text in zip(paths, dicts, strict=True):
            path.write_text(text)
        arguments = {
            "checkpoint": tmp_path / "checkpoint.pt",
            "dicts": paths,
            "bpe_codes": tmp_path / "codes",
            "output": tmp_path / "out",
        }
        return arguments, model

    return write


def test_joined_dictionary(files, batch):
    arguments, model = files((dictionary(99),))
    convert_checkpoint(**arguments, length_penalty=0.6)
    check_folder(arguments["output"])
    loaded = AutoModelForSeq2SeqLM.from_pretrained(arguments["output"])
    assert torch.equal(logits(loaded, batch), logits(model, batch))
    search = loaded.generation_config
    assert (search.num_beams, search.length_penalty, search.min_new_tokens) == (5, 0.6, 1)
    assert (search.early_stopping, search.suppress_tokens, search.length_limit) == (True, [1], [0, 200])
    assert (search.max_length, search.max_new_tokens) == (min(201, loaded.config.max_position_embeddings), None)
    tokenizer = AutoTokenizer.from_pretrained(arguments["output"])
    assert tokenizer.model_max_length == loaded.config.max_position_embeddings
    assert not (arguments["output"] / "target_tokenizer").exists()
    assert len(Translator.from_pretrained(arguments["output"]).translate(["w1 w2", ""])) == 2


def test_separate_dictionaries_and_moses(files):
    fields = {"share_encoder_decoder_embeddings": False, "vocab_size": 120, "decoder_vocab_size": 99}
    arguments, _ = files((dictionary(120, "s"), dictionary(99, "t")), **fields)
    convert_checkpoint(**arguments, moses={"source": "de", "target": "en", "escape": False}, lowercase=True)
    check_folder(arguments["output"])
    source = AutoTokenizer.from_pretrained(arguments["output"])
    target = AutoTokenizer.from_pretrained(arguments["output"] / "target_tokenizer")
    assert (len(source), len(target)) == (120, 99)
    assert source.init_kwargs["moses"] == {"source": "de", "target": "en", "escape": False}
    assert target.init_kwargs["moses"] == {"source": "en", "target": "en", "escape": False}
    assert source.lowercase and target.lowercase
    translation = Translator.from_pretrained(arguments["output"]).translate(["s1 s5"], max_new_tokens=5)[0]
    assert all(word.startswith("t") or word in ("<unk>", "<s>") for word in translation.split())


@pytest.mark.parametrize(
    ("dicts", "named"),
    [
        ([dictionary(96)], r"dict0\.txt"),
        ([dictionary(99), dictionary(99, "v")], r"dict1\.txt: .*dict0\.txt"),
        ([dictionary(99)] * 3, "dicts"),
    ],
    ids=["size", "two of one vocabulary", "three"],
)
def test_dictionaries_that_do_not_fit_are_named(files, dicts, named):
    arguments, _ = files(dicts)
    with pytest.raises(ValueError, match=named):
        convert_checkpoint(**arguments)
    assert not arguments["output"].exists()


@pytest.fixture(scope="module")
def real(shared, tmp_path_factory):
    """The real checkpoint's folder and the model folder made of its files."""
    folder = shared / "reference" / "clinic-ckpt-admin"
    checkpoint = tmp_path_factory.mktemp("clinic") / "checkpoint_last.pt"
    checkpoint.write_bytes((folder / "checkpoint_last.pt").read_bytes().replace(MASKED, MENDED))
    output = checkpoint.parent / "model"
    dicts = [folder / "dict.en.txt", folder / "dict.de.txt"]
    convert_checkpoint(checkpoint, dicts=dicts, bpe_codes=folder / "bpe.codes", output=output)
    return folder, output


def words(path: Path, column: int = 0) -> list[str]:
    """Lines of text with BPE undone."""
    return [line.split("\t")[column].replace("@@ ", "") for line in path.read_text().splitlines()]


@pytest.mark.shared
def test_a_real_checkpoint_translates_text_as_fairseq_generate_did(real):
    folder, output = real
    texts, expected = words(folder / "src20.bpe.en"), words(folder / "hyp20.beam5.tsv", 2)
    assert len(expected) == 20
    assert Translator.from_pretrained(output).translate(texts) == expected


@pytest.mark.shared
@pytest.mark.parametrize(
    "search", ["beam5", *(pytest.param(s, marks=pytest.mark.slow) for s in ("beam4_lp06", "beam5_la12_lb10", "greedy"))]
)
def test_translations_of_a_real_checkpoint(real, search):
    """All 20 sentences token for token, also with a length penalty and where the length limit cuts."""
    folder, output = real
    model = AutoModelForSeq2SeqLM.from_pretrained(output)
    reference = json.loads((folder / "generate.json").read_text())[search]
    theirs, sentences = reference["kwargs"], reference["one_sentence_per_batch"]
    settings = {"num_beams": theirs["beam_size"], "length_penalty": theirs.get("len_penalty", 1.0)}
    assert len(sentences) == 20
    for sentence in sentences:
        source = torch.tensor([sentence["src_tokens"]])
        limit = int(theirs.get("max_len_a", 0) * source.shape[1] + theirs["max_len_b"])
        processors = LogitsProcessorList([SentenceLengthLimit(torch.tensor([limit]), [EOS])])
        settings |= {"max_new_tokens": limit + 1, "early_stopping": theirs["beam_size"] > 1}
        found = model.generate(source, **settings, logits_processor=processors)[0, 1:]
        assert found.tolist() == sentence["nbest"][0]["tokens"], sentence["id"]
