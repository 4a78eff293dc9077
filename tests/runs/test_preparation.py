"""What `admin-nmt prepare` prepares is what training then finds, and a vocabulary that does not fit is refused."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from toy import bit_flipped, random_texts
from typer.testing import CliRunner

from admin_nmt import AdminConfig
from admin_nmt.cli.app import app
from admin_nmt.data import tokenizing, vocabulary
from admin_nmt.data.tokenization.byte_bpe import train_tokenizer
from admin_nmt.data.tokenization.tokenizer_folder import save_tokenizers
from admin_nmt.runs import preparation
from admin_nmt.runs.preparation import check_start, prepare
from admin_nmt.runs.recipe import load_recipe
from admin_nmt.runs.training_run import build_model


@pytest.fixture
def recipe_file(tmp_path) -> Path:
    """An original corpus twice, a tagged one once, and a validation set."""
    for name, seed in (("real", 1), ("bt", 2), ("valid", 3)):
        lines = random_texts(60, seed)
        (tmp_path / f"{name}.tsv").write_text("".join(f"{t}\t{t.lower()}\n" for t in lines), encoding="utf-8")
    small = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    recipe = {
        "output_dir": str(tmp_path / "run"),
        "data": {
            "root": str(tmp_path),
            "cache_dir": str(tmp_path / "cache"),
            "train": [{"source": "real.tsv", "upsample": 2}, {"source": "bt.tsv", "tag": "<bt>"}],
            "valid": {"source": "valid.tsv"},
        },
        "tokenizer": {"vocab_size": 300},
        "model": small | {"encoder_attention_heads": 2, "decoder_attention_heads": 2},
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def test_training_finds_what_was_prepared(recipe_file, monkeypatch):
    command = ["prepare", str(recipe_file), "--num-proc", "2", "--data.max_length", "200"]
    printed = CliRunner().invoke(app, command, catch_exceptions=False).stdout
    assert all(f"{step}: " in printed for step in ("reading", "cleaning", "vocabulary", "tokenising"))
    monkeypatch.setattr(
        tokenizing, "encode_pairs", lambda *_, **__: pytest.fail("tokenised although the cache is there")
    )
    monkeypatch.setattr(vocabulary, "train_tokenizer", lambda *_, **__: pytest.fail("trained a second tokenizer"))
    prepared = prepare(load_recipe(recipe_file, ["--data.max_length", "200"]))
    tag = prepared.source_tokenizer.convert_tokens_to_ids("<bt>")
    tagged = sum(ids[0] == tag for ids in prepared.data["train"]["input_ids"])
    kept = prepared.counts["kept"]
    assert tagged <= 60
    assert len(prepared.data["train"]) == 2 * (kept - tagged) + tagged
    assert len(prepared.data["valid"]) == 60


def content(prepared: preparation.Prepared) -> list:
    tokenizers = (prepared.source_tokenizer, prepared.target_tokenizer)
    rows = {split: part.to_list() for split, part in prepared.data.items()}
    return [rows, prepared.counts, [tokenizer.get_vocab() for tokenizer in tokenizers]]


def test_a_damaged_cache_is_made_again(recipe_file, tmp_path):
    """Every file of it at once, and each kind of file alone; other damages: tests/data/test_arrow_cache.py."""
    overrides = ["--tokenizer", "{vocab_size: 270, joint: false}", "--data.cleaning.normalize", "true"]
    expected = content(prepare(load_recipe(recipe_file, overrides)))
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and "lock" not in path.name]
    kinds = {re.sub("-[0-9a-f]+", "", str(path.relative_to(tmp_path))): [path] for path in sorted(files)}
    assert len(kinds) >= 10
    for chosen in (files, *kinds.values()):
        for path in chosen:
            bit_flipped(path)
        assert content(prepare(load_recipe(recipe_file, overrides))) == expected, chosen


def test_a_tag_joins_the_tokenizer_of_a_new_model_alone(recipe_file, tmp_path):
    other = str(tmp_path / "other")
    save_tokenizers(other, train_tokenizer(random_texts(60), 300))
    AdminConfig(vocab_size=300, **load_recipe(recipe_file).model.configuration()).save_pretrained(other)
    assert len(prepare(load_recipe(recipe_file, ["--tokenizer.path", other])).source_tokenizer) == 301
    with pytest.raises(ValueError, match="the tag <bt> is no token of the source vocabulary"):
        prepare(load_recipe(recipe_file, ["--tokenizer.path", "null", "--model.from_pretrained", other]))


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("--model.variant pre_ln", r"model\.variant"),
        ("--model.encoder_layers 2", r"model\.encoder_layers"),
        ("--model.omega_rule n", r"model\.omega_rule"),
        ("--tokenizer.vocab_size 280", r"tokenizer\.vocab_size"),
        ("--model.from_pretrained ./nowhere", r"model\.from_pretrained: \./nowhere"),
        ("--tokenizer.path ./nowhere", r"tokenizer\.path: \./nowhere"),
        ("--data.root nowhere", r"data\.train\[0\]: nowhere/real\.tsv"),
    ],
)
def test_what_contradicts_the_model_to_start_from_or_is_not_there_is_refused(recipe_file, tmp_path, override, named):
    """Before anything is read; what agrees with it, or does not concern its weights, may stay."""
    other = tmp_path / "other"
    AdminConfig(vocab_size=300, **load_recipe(recipe_file).model.configuration()).save_pretrained(other)
    start = ["--model.from_pretrained", str(other)]
    check_start(load_recipe(recipe_file, [*start, "--model.dropout", "0.3"]))
    save_tokenizers(other, train_tokenizer(random_texts(60), 300, tags=["<bt>"]))
    with pytest.raises(ValueError, match=f"^{named}"):
        prepare(load_recipe(recipe_file, [*start, *override.split()]))


@pytest.mark.parametrize(("source", "target"), [(280, 265), (265, 280), (270, 270)])
def test_vocabularies_of_two_sizes_share_the_id_of_padding(recipe_file, source, target):
    """The last one of the smaller vocabulary, so that one model can have both."""
    sizes = f"{{vocab_size: {source}, target_vocab_size: {target}, joint: false}}"
    recipe = load_recipe(recipe_file, ["--tokenizer", sizes])
    prepared = prepare(recipe)
    tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
    assert [len(tokenizer) for tokenizer in tokenizers] == [source, target]
    assert {tokenizer.pad_token_id for tokenizer in tokenizers} == {min(source, target) - 1}
    config = build_model(recipe, prepared).config
    assert (config.vocab_size, config.decoder_vocab_size) == (source, target)
    assert config.pad_token_id == config.decoder_start_token_id == min(source, target) - 1
    for side, name in zip(tokenizers, ("input_ids", "labels"), strict=True):
        assert not any(side.pad_token_id in ids for ids in prepared.data["train"][name])


def test_tokens_that_the_vocabulary_lacks_are_reported(recipe_file, tmp_path, capsys):
    """Bytes leave none unknown; of words that no training text has, subword-nmt's pieces are."""
    lines = (tmp_path / "valid.tsv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "valid.tsv").write_text("".join(f"{line} ж\n" for line in lines), encoding="utf-8")
    prepare(load_recipe(recipe_file))
    assert "unknown tokens" not in capsys.readouterr().out
    prepared = prepare(load_recipe(recipe_file, ["--tokenizer", "{kind: subword_nmt, merges: 60}"]))
    ids = [token for row in prepared.data["valid"]["labels"] for token in row]
    share = ids.count(prepared.target_tokenizer.unk_token_id) / len(ids)
    assert 0.01 < share < 0.5
    assert f"unknown tokens (<unk>): {share:.2%} of valid's target\n" in capsys.readouterr().out


def test_another_vocabulary_than_that_of_the_weights_is_refused(recipe_file, tmp_path):
    """Of the same size, so that nothing else would notice."""
    recipe = load_recipe(recipe_file)
    prepared = prepare(recipe)
    other = train_tokenizer(["zzz qqq " * 9, *random_texts(60, 9)], 300, tags=["<bt>"])
    assert len(other) == len(prepared.source_tokenizer)
    model = tmp_path / "model"
    build_model(recipe, prepared).save_pretrained(model)
    save_tokenizers(model, prepared.source_tokenizer)
    recipe = load_recipe(recipe_file, ["--model", f"{{from_pretrained: {model}}}"])
    build_model(recipe, prepared)
    save_tokenizers(model, other)
    with pytest.raises(ValueError, match="model was trained with another source vocabulary than the data has"):
        build_model(recipe, prepared)
    checkpoint = tmp_path / "run" / "checkpoint-3"
    build_model(load_recipe(recipe_file), prepared).save_pretrained(checkpoint)
    save_tokenizers(checkpoint, other)
    (checkpoint / "trainer_state.json").write_text("{}")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        torch.save({}, checkpoint / name)
    with pytest.raises(ValueError, match=r"checkpoint-3 was trained with another source vocabulary.*restore the"):
        build_model(load_recipe(recipe_file), prepared)


def test_the_folder_of_a_run_is_no_model_to_start_from(tmp_path):
    """A recipe names the model itself, so that its meaning does not change when the run goes on."""
    (tmp_path / "run" / "final").mkdir(parents=True)
    (tmp_path / "run" / "final" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"model\.from_pretrained: .*run.*final"):
        preparation.model_folder(str(tmp_path / "run"), "model.from_pretrained")


def test_a_pattern_below_a_root_with_brackets(recipe_file, tmp_path):
    root = tmp_path / "[2024]"
    root.mkdir()
    for path in tmp_path.glob("*.tsv"):
        path.rename(root / path.name)
    recipe = load_recipe(recipe_file, ["--data.root", f'"{root}"', "--data.valid.source", '"val*.tsv"'])
    assert len(prepare(recipe).data["valid"]) == 60
