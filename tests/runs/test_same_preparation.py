"""Preparation gives what it gave when every text went through Python and the tokenizers library one by one.

preparation_digests.json holds the digests of then; `python tests/runs/test_same_preparation.py` writes
those of now there.
"""

import gzip
import hashlib
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import Dataset

from admin_nmt.data import arrow_cache
from admin_nmt.data.parallel_text import load_parallel
from admin_nmt.data.tokenization.byte_bpe import train_tokenizer
from admin_nmt.runs.preparation import prepare
from admin_nmt.runs.recipe import load_recipe

DIGESTS = Path(__file__).with_name("preparation_digests.json")
PLAIN = "the house is small der Hund hat 42 Knochen don't l'été Straße ÜBER naïve 3.14 (and) e\u0301 हिन्दी 中文 😀"
WORDS = PLAIN.split(" ")
# Spaces of every kind, at both ends and in rows; what looks like a special token; what no printer shows.
AWKWARD = (
    "", " ", "  ", "  two  in front", "behind  ", "three   inside", "no\u00a0break \u00a0 mixed\u00a0 end",
    "tab\t \tab",
    "\u3000wide\u3000 ", "a\u2028b\u2029c\x85d\x0be\x0cf", "a\x1c \x1db\x1e \x1f", "carriage\rreturn\r", "nul\x00 \x00",
    "\ufeffmark \ufeff", "zero\u200bwidth \u200b", "</s> a </s><unk>\u00a0<pad>", "Ġhello Ċ", "1,234.50 ½ ² Ⅷ",
    "@@ &amp; a@-@b",
    "\U0010ffff \u180e x", "“quoted” – „so“ …", "👩‍👩‍👧 \ufe0f", "a" * 3000, "ä " * 260, "! " * 40, "    " * 30 + "x",
)  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "joint": {},
    "two vocabularies": {"tokenizer": {"vocab_size": 330, "target_vocab_size": 320, "joint": False}},
    "strict cleaning": {
        "data": {"max_length": 40},
        "cleaning": {
            "max_words": 15,
            "max_ratio": 1.1,
            "ratio_slack": 0,
            "longest_word": 30,
            "drop_held_out": "either",
        },
    },
    "lax cleaning": {
        "cleaning": {"max_words": None, "max_ratio": None, "drop_copies": False, "drop_duplicates": False}
        | {"drop_held_out": "pair", "normalize": True}
    },
    "papers": {"tokenizer": {"kind": "subword_nmt", "merges": 60, "normalize_punctuation": True}},
}


def pairs(number: int, seed: int) -> list[tuple[str, str]]:
    """Sentences with awkward ones among them, repetitions and copies."""
    draw = random.Random(seed)

    def text() -> str:
        if draw.random() < 0.3:
            return draw.choice(AWKWARD)
        words = draw.choices(WORDS, k=draw.randint(1, 12))
        return " ".join(words + [draw.choice(AWKWARD)] * (draw.random() < 0.2))

    drawn = [(text(), text()) for _ in range(number)]
    drawn += [(source, source) for source, _ in drawn[:9]] + draw.choices(drawn, k=30)
    draw.shuffle(drawn)
    return drawn


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def columns(dataset: Dataset) -> dict[str, list[Any]]:
    return {name: dataset[name][:] for name in sorted(dataset.column_names)}


def files(folder: Path, number: int, seed: int, name: str) -> dict[str, Path]:
    """The pairs as two text files with line ends of both kinds, as TSV and as JSON lines, some of them gzipped."""
    drawn = pairs(number, seed)
    content = {
        f"{name}.en": "\ufeff" + "".join(f"{source}\r\n" for source, _ in drawn),
        f"{name}.de.gz": "\n".join(target for _, target in drawn) + "\r",
        f"{name}.tsv.gz": "".join(f"{s.replace(chr(9), '_')}\t{t.replace(chr(9), '_')}\n" for s, t in drawn),
        f"{name}.jsonl": "".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in drawn),
    }
    for path, text in content.items():
        data = text.encode()
        (folder / path).write_bytes(gzip.compress(data) if path.endswith(".gz") else data)
    return {path.removeprefix(name): folder / path for path in content}


def read_all(folder: Path) -> dict[str, str]:
    """Digests of what each format gives."""
    made = files(folder, 300, 1, "all")
    read = {
        "text": load_parallel(made[".en"], made[".de.gz"], cache_dir=folder),
        "TSV": load_parallel(made[".tsv.gz"], cache_dir=folder),
        "JSON": load_parallel(made[".jsonl"], cache_dir=folder),
    }
    return {name: digest(columns(dataset)) for name, dataset in read.items()}


def prepare_all(folder: Path, name: str, num_proc: int = 1) -> dict[str, Any]:
    """Counts and digests of the vocabularies and of every split under one of the `VARIANTS`."""
    variant = VARIANTS[name]
    train, valid = files(folder, 300, 2, "train"), files(folder, 20, 3, "valid")
    more = folder / "more.jsonl"
    line_feeds = [("line \n feed\n", "\nZeilen \n vorschub"), ("\n", "leer")]  # which only JSON can hold
    shared = [*pairs(20, 3)[:9], *pairs(40, 4), *line_feeds]  # some of the held-out pairs
    more.write_text("".join(json.dumps({"source": s, "target": t}) + "\n" for s, t in shared))
    corpora = [{"source": str(train[".en"]), "target": str(train[".de.gz"])}, {"source": str(more), "tag": "<bt>"}]
    small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    data = {"cache_dir": str(folder / "cache"), "train": corpora, "valid": {"source": str(valid[".tsv.gz"])}}
    recipe = {
        "output_dir": str(folder / "run"),
        "data": data | variant.get("data", {}) | {"cleaning": variant.get("cleaning", {})},
        "tokenizer": variant.get("tokenizer", {"vocab_size": 340}),
        "model": small | {"encoder_attention_heads": 2, "decoder_attention_heads": 2},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    prepared = prepare(load_recipe(folder / "recipe.yaml"), num_proc)
    tokenizers = (prepared.source_tokenizer, prepared.target_tokenizer)
    vocabularies = [sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]) for tokenizer in tokenizers]
    return {
        "counts": prepared.counts,
        "vocabularies": digest(vocabularies),
        **{split: digest(columns(part)) for split, part in prepared.data.items()},
    }


def learn() -> str:
    """Digest of a tokenizer and of what it makes of every text."""
    texts = [side for pair in pairs(300, 5) for side in pair]
    tokenizer = train_tokenizer(texts, 400, tags=["<bt>"])
    return digest([json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"], tokenizer(texts)["input_ids"]])


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(arrow_cache, "SHARD", 70)
    monkeypatch.setattr(arrow_cache, "BATCH", 23)


def test_reading_is_the_same(tmp_path):
    assert read_all(tmp_path) == json.loads(DIGESTS.read_text())["reading"]


def test_learning_is_the_same():
    assert learn() == json.loads(DIGESTS.read_text())["learning"]


@pytest.mark.parametrize("name", VARIANTS)
def test_preparation_is_the_same(tmp_path, name, small_shards):
    if name == "papers":
        pytest.importorskip("subword_nmt")
    assert prepare_all(tmp_path, name) == json.loads(DIGESTS.read_text())["preparation"][name]


def main() -> None:
    def new() -> Path:
        return Path(tempfile.mkdtemp())

    prepared = {name: prepare_all(new(), name) for name in VARIANTS}
    DIGESTS.write_text(
        json.dumps({"reading": read_all(new()), "learning": learn(), "preparation": prepared}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
