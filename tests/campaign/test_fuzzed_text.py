"""Text of any kind: as many lines out as in, none lost, none shifted; what is no text is refused by its line."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from campaign import assert_done, assert_told, run, trials
from datasets import Dataset
from toy import random_texts
from transformers import AutoTokenizer

pytestmark = pytest.mark.campaign

LINES = 500  # of a file
FILES = trials(20)
SEARCH = ["--num-beams", "1", "--chunk", "130"]
SENTINEL = "Two books cost ten euros."

# Line breaks of other systems, and what else Python's splitlines breaks at.
BREAKS = ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
ODD = [
    *BREAKS, "\0", "\x01", "\x07", "\x1b[31m", "\x7f", "\t", "\ufeff", "\u200b", "\u202e", "\u2066", "\u2069", "\u061c",
    "\u0301", "\U0001f469\u200d\U0001f52c", "\ue000", "\U0010ffff", "\ufffe", "ß", "İ", "ﬁ", "漢", "ب", "<s>", "</s>",
    "<pad>", "<unk>", "\\n", "%s", "{}",
]  # fmt: skip


def any_character(draw: Random) -> str:
    """Any but the halves of surrogate pairs, which UTF-8 does not have."""
    number = draw.randrange(0x110000 - 0x800)
    return chr(number if number < 0xD800 else number + 0x800)


KINDS: list[Callable[[Random], str]] = [
    lambda draw: "",
    lambda draw: " " * draw.randrange(1, 9),
    lambda draw: SENTINEL,
    lambda draw: draw.choice(random_texts(50)),
    lambda draw: draw.choice(ODD),
    lambda draw: "".join(draw.choices(ODD, k=draw.randrange(1, 30))),
    lambda draw: draw.choice(BREAKS).join(draw.sample(random_texts(50), 2)),
    lambda draw: "".join(any_character(draw) for _ in range(draw.randrange(40))),
    lambda draw: "".join(map(chr, draw.choices(range(0x20), k=draw.randrange(1, 20)))),
    lambda draw: draw.choice(["a", " ", "漢", "\u0301", "word "]) * draw.choice([1000, 20_000]),
]  # fmt: skip


def fuzzed(draw: Random) -> list[str]:
    """Lines without a line feed, which ends one; and no carriage return or mark where a file's own would be."""
    lines = [draw.choice(KINDS)(draw).replace("\n", " ") for _ in range(LINES)]
    return [line.rstrip("\r").lstrip("\ufeff") for line in lines]


def write(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


def read(data: bytes) -> list[str]:
    assert data.endswith(b"\n")
    return data.decode().removesuffix("\n").split("\n")


@pytest.fixture
def work(finished: Path, folder: Path) -> Path:
    work = folder / "work"
    shutil.copytree(finished, work, ignore=shutil.ignore_patterns("cache", "checkpoint-*"))
    return work


@pytest.fixture
def lines(draw: Random, work: Path) -> list[str]:
    lines = fuzzed(draw)
    write(work / "lines", lines)
    return lines


@pytest.mark.parametrize("number", FILES)
def test_translate(number, lines, work):
    """From stdin and from files alike; blank lines stay where they are, and a known one keeps its translation."""
    file = run("translate", "run/standard", "--input", "lines", "--output", "translations", *SEARCH, folder=work)
    assert_done(file)
    stdin = run("translate", "run/standard", *SEARCH, folder=work, stdin=work / "lines")
    assert_done(stdin)
    assert (work / "translations").read_bytes() == stdin.out
    translations = read(stdin.out)
    assert len(translations) == LINES
    assert not any(len(line.splitlines()) > 1 for line in translations)
    blank = {index for index, line in enumerate(lines) if not line.strip()}
    assert {translations[index] for index in blank} == {""}
    known = [translations[index] for index, line in enumerate(lines) if line == SENTINEL]
    assert known.count(max(set(known), key=known.count)) > 0.9 * len(known)  # other batches may round otherwise


@pytest.mark.parametrize("number", FILES)
def test_score(number, lines, work):
    """A row a pair, with the tokens of its own target."""
    tokenizer = AutoTokenizer.from_pretrained(work / "run" / "standard")
    fitting = [line for line in lines if len(tokenizer(line)["input_ids"]) <= 64]
    write(work / "source", fitting)
    write(work / "target", fitting[::-1])
    ended = run("score", "run/standard", "--source", "source", "--target", "target", folder=work)
    assert_done(ended)
    counts = [int(row.split("\t")[1]) for row in read(ended.out)]
    assert counts == [len(tokenizer(line)["input_ids"]) for line in fitting[::-1]]


@pytest.mark.parametrize("number", FILES)
def test_prepare(number, lines, work):
    """All pairs are read; the cache has them as they are."""
    write(work / "train.en", lines)
    write(work / "train.de", lines[::-1])
    ended = run("prepare", "recipe.yaml", folder=work)
    assert_done(ended)
    caches = [Dataset.from_file(str(path)) for path in (work / "cache").glob("pairs-*.arrow")]
    (pairs,) = [cache for cache in caches if len(cache) == LINES]
    assert pairs["source"][:] == lines and pairs["target"][:] == lines[::-1]


NO_TEXT = [b"\xff", b"a\xffb", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\xaf", "漢".encode("utf-16")]
READERS = {
    "translate": "translate run/standard --input lines --output out",
    "score": "score run/standard --source lines --target test.de",
    "evaluate": "evaluate run/standard --source lines --target test.de --language de",
    "prepare": "prepare recipe.yaml --data.test.source lines",
    "train": "train recipe.yaml --output_dir another --data.train.target lines --data.train.source test.en",
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("number", trials(8))
def test_bytes_that_are_no_text_are_refused_by_their_line(number, name, work, draw: Random):
    lines = (work / "test.en").read_bytes().splitlines()
    line = draw.randrange(len(lines))
    lines[line] += draw.choice(NO_TEXT) + draw.choice([b"", b" x"])
    (work / "lines").write_bytes(b"\n".join(lines) + b"\n")
    assert_told(run(*READERS[name].split(), folder=work), f"lines: line {line + 1} ")
