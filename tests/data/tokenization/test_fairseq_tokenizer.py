"""The tokenizer of imported checkpoints, against subword-nmt itself and a dictionary lookup as fairseq does it."""

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesDetokenizer, MosesTokenizer
from transformers import AutoTokenizer

import admin_nmt  # noqa: F401 registers the tokenizer
from admin_nmt.data.rewriting import detokenizer, normalizer
from admin_nmt.data.tokenization.bpe_codes import BpeCodes
from admin_nmt.data.tokenization.fairseq_tokenizer import FairseqTokenizer, read_dictionary
from admin_nmt.data.tokenization.moses import Moses

subword_nmt = pytest.importorskip("subword_nmt.apply_bpe")

ALPHABET = "abcdeß"
MERGES = [
    "a b", "ab c</w>", "c d", "b c", "ab c", "abc d</w>", "e</w> x", "d e</w>", "cd e</w>", "a a", "aa a</w>", "b a",
    "a b</w>", "ß a", "ab ab", "a b",
]  # fmt: skip
# Lacks pieces that merges lead to (ab@@, cde, ...), and has one that no merge makes.
SYMBOLS = ["a", "b", "a@@", "b@@", "c@@", "c", "d@@", "d", "e", "abc", "cd@@", "de", "ba@@", "aa@@", "x@@", "zzz", "0"]


def write_files(folder: Path, header: str = "#version: 0.2\n", symbols: list[str] = SYMBOLS) -> tuple[str, str]:
    codes, dictionary = folder / "codes", folder / "dict.txt"
    codes.write_text(header + "\n".join(MERGES) + "\n", encoding="utf-8")
    dictionary.write_text("".join(f"{symbol} {99 - i}\n" for i, symbol in enumerate(symbols)), encoding="utf-8")
    return str(dictionary), str(codes)


@pytest.fixture(scope="module", params=["#version: 0.2\n", "#version: 0.1\n", ""], ids=["0.2", "0.1", "none"])
def pair(request, tmp_path_factory):
    """Our tokenizer, and fairseq's way from a line of text to ids."""
    files = write_files(tmp_path_factory.mktemp("files"), request.param)
    with open(files[1], encoding="utf-8") as codes:
        bpe = subword_nmt.BPE(codes)

    def reference(line: str) -> list[int]:
        ids = {symbol: i for i, symbol in enumerate(["<s>", "<pad>", "</s>", "<unk>", *SYMBOLS])}
        return [ids.get(symbol, 3) for symbol in bpe.process_line(line).split()] + [2]

    return FairseqTokenizer(*files), reference


words = (
    st.text(ALPHABET, max_size=9) | st.text(max_size=5) | st.sampled_from(["</w>", "</s>", "<unk>", "@@", "a@@", "12"])
)


@settings(max_examples=300, deadline=None)
@given(st.lists(words | st.sampled_from(["", "\t", "\u00a0", "\n"]), max_size=8).map(" ".join))
def test_ids_are_those_of_subword_nmt_and_the_dictionary(pair, line):
    tokenizer, reference = pair
    assert tokenizer(line)["input_ids"] == reference(line)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.text("ab", min_size=1, max_size=2), st.text("abc", min_size=1, max_size=2)), max_size=30),
    st.text("abc", max_size=12),
)
def test_any_merges_in_any_order(tmp_path_factory, merges, word):
    """Covers merges that no training makes, whose products come before their parts."""
    path = tmp_path_factory.getbasetemp() / "codes"
    path.write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges or [("a", "b")]))
    with path.open() as codes:
        assert BpeCodes(path).segment(word) == subword_nmt.BPE(codes).segment(word).split()


def test_decoding_joins_pieces_and_shows_unknown_words(tmp_path):
    tokenizer = FairseqTokenizer(*write_files(tmp_path))
    ids = tokenizer.convert_tokens_to_ids(["a@@", "b", "cd@@", "e", "<unk>", "x@@"])
    assert tokenizer.decode([2, *ids, 2, 1, 1], skip_special_tokens=True) == "ab cde <unk> x"
    assert tokenizer.decode([*ids[:2], 2]) == "ab </s>"
    assert tokenizer.batch_decode([ids[:2], [2]], skip_special_tokens=True) == ["ab", ""]


def test_auto_tokenizer_gives_the_same(pair, tmp_path):
    tokenizer, _ = pair
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    lines = ["".join(random.Random(i).choices(ALPHABET + " 0", k=30)) for i in range(20)]
    assert isinstance(loaded, FairseqTokenizer)
    assert loaded(lines)["input_ids"] == tokenizer(lines)["input_ids"]
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert {loaded.padding_side, loaded.truncation_side} == {"right"}
    loaded.save_pretrained(tmp_path)  # over itself
    assert len(AutoTokenizer.from_pretrained(tmp_path)) == len(tokenizer)


def test_moses_and_lower_case_stand_before_bpe(tmp_path):
    symbols = [*SYMBOLS, "don", "&apos;t", "t", "@-@", ".", "&quot;"]
    dictionary, _ = write_files(tmp_path, symbols=symbols)
    codes = tmp_path / "words"
    codes.write_text("#version: 0.2\nd o\ndo n</w>\n& a\n&a p\n&ap o\n&apo s\n&apos ;\n&apos; t</w>\n@ -\n@- @</w>\n")
    moses = {"source": "en", "target": "en", "aggressive_hyphens": True}
    tokenizer = FairseqTokenizer(dictionary, str(codes), moses=moses, lowercase=True)
    assert tokenizer.tokenize("DON't a-b.") == ["don", "&apos;t", "a", "@-@", "b", "."]
    ids = tokenizer("DON't a-b.")["input_ids"]
    assert 3 not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "don't a-b."
    tokenizer.save_pretrained(tmp_path / "saved")
    code = {path.name for path in (tmp_path / "saved").glob("*.py")}
    assert code == {"fairseq_tokenizer.py", "bpe_codes.py", "moses.py"}  # also what is imported when it is needed
    loaded = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert loaded("DON't a-b.")["input_ids"] == ids
    assert loaded.decode(ids, skip_special_tokens=True) == "don't a-b."


@pytest.mark.parametrize("escape", [True, False])
def test_moses_is_that_of_sacremoses(tmp_path, escape):
    tokenizer = FairseqTokenizer(*write_files(tmp_path), moses={"source": "de", "target": "en", "escape": escape})
    text = 'Er sagte: "Dr. Müller & Co. hat [3] E-Mails — z.B. heute", nicht wahr?'
    tokens = MosesTokenizer("de").tokenize(text, escape=escape, return_str=True)
    assert tokenizer.words.tokenize(text) == tokens
    assert tokenizer.words.detokenize("he 's &amp; I " * 2) == MosesDetokenizer("en").detokenize(
        ("he 's &amp; I " * 2).split(), unescape=escape
    )


def test_moses_knows_a_language_by_any_of_its_regions():
    """sacremoses takes English's abbreviations for a code that it does not know, and says nothing."""
    text = "Siehe vgl. Abb. 3 bzw. Tab. 4."
    plain, regional = Moses("de", "fr"), Moses("de-AT", "FR_ca")
    assert plain.tokenize(text) == regional.tokenize(text) != Moses("en", "en").tokenize(text)
    assert plain.detokenize("c' est l' homme !") == regional.detokenize("c' est l' homme !") == "c'est l'homme !"
    assert detokenizer("fr-CA")("c' est l' homme !") == "c'est l'homme !"
    assert normalizer("fr-CA")("« a »") == normalizer("fr")("« a »")


@pytest.mark.shared
def test_real_codes_and_dictionary(shared):
    """Multi30k through a real checkpoint's codes: the words of its own 20 sources, and 500 other lines."""
    folder = shared / "reference" / "clinic-ckpt-admin"
    tokenizer = FairseqTokenizer(str(folder / "dict.en.txt"), str(folder / "bpe.codes"))
    with (folder / "bpe.codes").open(encoding="utf-8") as codes:
        bpe = subword_nmt.BPE(codes)
    for line in (folder / "src20.bpe.en").read_text().splitlines():
        assert tokenizer.tokenize(line.replace("@@ ", "")) == line.split()
    unknown = 0
    with gzip.open(shared / "data" / "multi30k" / "train.de.gz", "rt", encoding="utf-8") as lines:
        for line, _ in zip(lines, range(500), strict=False):
            symbols = bpe.process_line(line.strip()).split()
            ids = [tokenizer.ids.get(symbol, 3) for symbol in symbols]
            assert tokenizer(line.strip())["input_ids"] == [*ids, 2]
            unknown += ids.count(3)
    assert unknown > 0


@pytest.mark.parametrize(
    ("read", "content", "named"),
    [
        (read_dictionary, b"a 5\na 4\n", "line 2"),
        (BpeCodes, b"#version: 0.2\na b\nc\n", "line 3"),
        (BpeCodes, b"#version: 0.3\na b\n", r"0\.3"),
        (BpeCodes, b"\xff\xfe", "UTF-8"),
    ],
)
def test_damaged_files_are_named_with_the_line(tmp_path, read, content, named):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"file.*{named}"):
        read(path)
