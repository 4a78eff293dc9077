"""Text, codes and dictionary as the papers' scripts prepare them, against what those scripts gave on a made-up bitext.

`papers_preparation.json` names the scripts. Its pairs have what Moses' rules are about, and lengths on both sides of
each limit of the filters.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from toy import write_recipe

from admin_nmt.data import vocabulary
from admin_nmt.data.tokenization.moses import Moses
from admin_nmt.data.tokenization.subword_training import dictionary
from admin_nmt.data.tokenization.tokenizer_folder import load_tokenizers
from admin_nmt.decoding import ctranslate2_backend
from admin_nmt.decoding.translator import Translator
from admin_nmt.runs.preparation import prepare
from admin_nmt.runs.recipe import load_recipe
from admin_nmt.runs.training_run import run_recipe

pytest.importorskip("subword_nmt")

PREPARED = json.loads((Path(__file__).parent / "papers_preparation.json").read_text(encoding="utf-8"))
NO_FILTER = {"drop_copies": False, "drop_duplicates": False, "drop_held_out": None}
MOSES_CLEAN = NO_FILTER | {"ratio_slack": 0, "longest_word": 1000}
NORMALISED = {"normalize_punctuation": True, "aggressive_hyphens": True}
CASES = {
    "wmt14en-de": (NORMALISED | {"merges": 60}, {"max_words": 80, "max_ratio": 9}),
    "wmt14en-fr": (NORMALISED | {"merges": 60}, {"max_words": 250, "max_ratio": 1.5, "count": "subwords"}),
    "before 2018": (
        {"merges": 40, "threshold": 2, "split_final_dots": False},
        {"max_words": 80, "max_ratio": 9},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_those_of_the_scripts(name):
    settings = {key: value for key, value in CASES[name][0].items() if key not in ("merges", "threshold")}
    case = PREPARED[name]
    moses = Moses(*case["languages"], **{"split_final_dots": True} | settings)
    found = [[moses.tokenize(source), moses.tokenize(target, of_target=True)] for source, target in case["pairs"]]
    assert [[side.split() for side in pair] for pair in found] == [
        [side.split() for side in pair] for pair in case["tokens"]
    ]


@pytest.fixture(scope="module", params=CASES)
def prepared(request, tmp_path_factory):
    """A case, its recipe, and what that becomes."""
    folder, (tokenizer, cleaning), case = tmp_path_factory.mktemp("case"), CASES[request.param], PREPARED[request.param]
    for number, side in enumerate(("source", "target")):
        (folder / side).write_text("".join(f"{pair[number]}\n" for pair in case["pairs"]), encoding="utf-8")
    files = {"source": str(folder / "source"), "target": str(folder / "target")}
    small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "encoder_attention_heads": 1}
    recipe = {
        "output_dir": str(folder / "run"),
        "languages": case["languages"],
        "data": {"cache_dir": str(folder / "cache"), "train": files, "test": files, "max_length": None}
        | {"cleaning": MOSES_CLEAN | cleaning},
        "tokenizer": {"kind": "subword_nmt"} | tokenizer,
        "model": small | {"decoder_attention_heads": 1},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    loaded = load_recipe(path)
    return case, loaded, prepare(loaded, num_proc=1)


def test_pieces_and_dictionary_are_those_of_the_scripts(prepared):
    """Compared after the filters; with fairseq's symbols in fairseq's order, and as many ids."""
    case, _, found = prepared
    tokenizer = found.source_tokenizer
    known = set(case["dictionary"][4:])
    expected = [[[p if p in known else "<unk>" for p in side.split()] for side in pair] for pair in case["pieces"]]
    sides = [
        [tokenizer.convert_ids_to_tokens(ids[:-1]) for ids in found.data["train"][name][:]]
        for name in ("input_ids", "labels")
    ]
    assert [list(pair) for pair in zip(*sides, strict=True)] == expected
    assert any("<unk>" in side for pair in expected for side in pair) == (case is PREPARED["before 2018"])
    assert len(tokenizer) == len(case["dictionary"])
    pieces = [symbol for symbol in case["dictionary"][4:] if not symbol.startswith("madeupword")]
    assert tokenizer.symbols[2 : 2 + len(pieces)] == pieces
    assert (tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id) == (0, 1, len(tokenizer) - 1)
    assert tokenizer.codes.ranks == {tuple(line.split(" ")): n for n, line in enumerate(case["codes"][1:], 2)}


def test_a_second_preparation_reads_the_cache(prepared, monkeypatch):
    _, recipe, first = prepared
    for name in ("learn_codes", "count_pieces"):
        monkeypatch.setattr(vocabulary, name, lambda *_, **__: pytest.fail("made again although the cache is there"))
    assert prepare(recipe, num_proc=1).data["train"].to_list() == first.data["train"].to_list()
    other = recipe.model_copy(update={"tokenizer": recipe.tokenizer.model_copy(update={"threshold": 7})})
    with pytest.raises(pytest.fail.Exception, match="made again"):
        prepare(other, num_proc=1)


def test_raw_text_gets_the_ids_of_the_prepared_text(prepared):
    """That of the training data, which was prepared in steps, and that of the test set, of which all lines remain."""
    case, _, found = prepared
    test, train = found.data["test"], found.data["train"]
    assert len(test) == len(case["pairs"]) > len(train)
    rows = {(tuple(row["input_ids"]), tuple(row["labels"])) for row in test}
    assert {(tuple(row["input_ids"]), tuple(row["labels"])) for row in train} <= rows
    assert {found.source_tokenizer} == {found.target_tokenizer}


def test_largest_dictionary_is_that_of_fairseq(prepared):
    case, _, _ = prepared
    pieces = Counter(piece for pair in case["pieces"] for side in pair for piece in side.split())
    assert dictionary(pieces, size=40) == case["dictionary of 40"][4:]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of six updates on text that was prepared so, with a tagged corpus."""
    folder = tmp_path_factory.mktemp("run")
    path = write_recipe(folder)
    recipe = yaml.safe_load(path.read_text())
    files = recipe["data"]["train"]
    recipe["data"] |= {"train": [files, files | {"tag": "<bt>"}], "cleaning": {"count": "subwords"}}
    recipe["tokenizer"] = {"kind": "subword_nmt", "merges": 200} | NORMALISED
    path.write_text(yaml.safe_dump(recipe))
    loaded = load_recipe(path)
    run_recipe(loaded)
    return folder / "run"


def test_both_models_of_a_run_translate_raw_text_alike(run, tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2")
    monkeypatch.setattr(ctranslate2_backend, "CACHE", tmp_path / "cache")
    lines = ["They didn't know “that” thing – 5\u00a0% of it, etc.", "", "A well-known e-mail."]
    outputs = [
        Translator.from_pretrained(run / name, backend=backend, max_new_tokens=19).translate(lines)
        for name in ("final", "standard")
        for backend in ("torch", "ctranslate2")
    ]
    assert outputs[1:] == outputs[:1] * 3
    assert any(outputs[0]) and "@@" not in "".join(outputs[0]) and "&apos;" not in "".join(outputs[0])


def test_tokenizer_of_a_model_encodes_both_languages_and_decodes_the_target(run):
    tokenizer, target = load_tokenizers(run / "standard")
    assert tokenizer is target
    assert tokenizer.tokenize("A well-known “thing” etc.") == tokenizer.tokenize('A well-known "thing" etc .')
    words, moses = tokenizer.of_words(), Moses("en", "de", split_final_dots=True, **NORMALISED)
    english, german = "The dog's 5\u00a0% is known.", "Der Hund's 5\u00a0% ist bekannt."
    assert tokenizer(english)["input_ids"] == words(moses.tokenize(english))["input_ids"]
    of_german = words(moses.tokenize(german, of_target=True))["input_ids"]
    assert tokenizer(text_target=german)["input_ids"] == of_german != tokenizer(german)["input_ids"]
    text = "Ein Mann, 5% und ein Hund."
    assert tokenizer.decode(tokenizer(text_target=text)["input_ids"], skip_special_tokens=True) == text
    tag = tokenizer.convert_tokens_to_ids("<bt>")
    assert tag == len(tokenizer) - 2 and tag not in tokenizer("a <bt> b")["input_ids"]
    assert tokenizer.decode([tag, 0], skip_special_tokens=True) == ""


@pytest.mark.slow
def test_stock_model_needs_no_package_of_ours(run, tmp_path):
    """Its tokenizer's code comes with it."""
    text = "A well-known thing."
    code = (
        "import sys; from transformers import AutoTokenizer\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(run / 'standard')!r}, trust_remote_code=True)\n"
        f"print(tokenizer({text!r})['input_ids'], 'admin_nmt' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["HF_HOME"] = str(tmp_path)
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=run, env=environment
    ).stdout
    assert printed.strip() == f"{load_tokenizers(run / 'standard')[0](text)['input_ids']} False"


def test_two_vocabularies_have_one_size(tmp_path):
    path = write_recipe(tmp_path)
    tokenizer = "{kind: subword_nmt, merges: 100, joint: false, aggressive_hyphens: true}"
    prepared = prepare(load_recipe(path, ["--tokenizer", tokenizer]))
    source, target = prepared.source_tokenizer, prepared.target_tokenizer
    assert source is not target and source.symbols != target.symbols and len(source) == len(target)
    assert prepared.data["test"]["source"][0] == source.decode(
        source(prepared.data["test"]["source"][0])["input_ids"], skip_special_tokens=True
    )
    german = "Ein wohl-bekannter Hund."
    assert target(german)["input_ids"] == target(text_target=german)["input_ids"]


def test_normalised_training_text_alone(tmp_path):
    """The tokenizer takes other text as it is with `data.cleaning.normalize`."""
    path = write_recipe(tmp_path)
    (tmp_path / "train.en").write_text("He said “so” – twice.\n" * 9, encoding="utf-8")
    (tmp_path / "train.de").write_text("Er sagte „so“ – zweimal.\n" * 9, encoding="utf-8")
    settings = ["--tokenizer", "{kind: subword_nmt, merges: 9}", "--data.cleaning", "{normalize: true}"]
    found = prepare(load_recipe(path, settings)).source_tokenizer
    assert "&quot;" in found.get_vocab() and "“" not in found.get_vocab()
    assert found.unk_token_id in found("“so”")["input_ids"]
