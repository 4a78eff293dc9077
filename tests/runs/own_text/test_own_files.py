"""The files of somebody's own text: languages and names by their paths, and which are refused."""

import os

import pytest

from admin_nmt.runs.own_text.files import OwnFiles, OwnText, guess_languages, run_name


@pytest.mark.parametrize(
    ("source", "target", "languages", "name"),
    [
        ("train.en", "train.de", ["en", "de"], "train-en-de"),
        ("data/train.en.gz", "other/train.de", ["en", "de"], "train-en-de"),
        ("en/corpus.txt", "de/corpus.txt", ["en", "de"], "corpus-en-de"),
        ("Tatoeba.de-en.de", "Tatoeba.de-en.en", ["de", "en"], "Tatoeba-de-en"),
        ("english.txt", "german.txt", ["en", "de"], "own-en-de"),
        ("a.pt_BR.txt", "a.de_DE.txt", ["pt", "de"], "a-pt-de"),
        ("train.en", "train.pt-BR", ["en", "pt"], "train-en-pt"),
        ("Subtitles.en-pt_br.en", "Subtitles.en-pt_br.pt_br", ["en", "pt"], "Subtitles-en-pt"),
        ("train.en-pt_BR.tsv", None, ["en", "pt"], "train-en-pt"),
        ("train.en-pt_br.tsv", None, ["en", "pt"], "train-en-pt"),
        ("train.en_de.tsv", None, ["en", "de"], "train-en-de"),
        ("train.src", "train.mt", None, None),
        ("part*.en", "part*.de", ["en", "de"], "own-en-de"),
        ("opus_hu_no.jsonl.gz", None, ["hu", "no"], "opus-hu-no"),
        ("src.txt", "tgt.txt", None, None),
        ("train.en", "train.en.bak", None, None),
        ("pairs.tsv", None, None, None),
    ],
)
def test_languages_and_names_are_guessed_from_paths(source, target, languages, name):
    files = OwnFiles([source], [target] if target else [])
    assert guess_languages(files) == languages
    assert languages is None or run_name(files, languages) == name


def test_files_that_cannot_be_the_text_are_refused(tmp_path):
    """Missing ones, one file as both sides, one language alone, and a pipe, which a run cannot read again."""
    (tmp_path / "a.en").write_text("a\n")
    (tmp_path / "a[1].en").write_text("a\n")  # a name, no pattern
    os.mkfifo(tmp_path / "pipe")
    a, b, brackets = (str(tmp_path / name) for name in ("a.en", "b.de", "a[1].en"))
    with pytest.raises(FileNotFoundError, match=r"b\.de"):
        OwnText(OwnFiles([f"{tmp_path}/*.tsv"]), {"valid": OwnFiles([a], [b])}).check()
    for files, named in (
        (OwnFiles([a], [f"{tmp_path}/./a.en"]), "source and as the target"),
        (OwnFiles([brackets], [f"{tmp_path}/./a[1].en"]), "source and as the target"),
        (OwnFiles([a]), "--target"),
        (OwnFiles([a], [str(tmp_path / "pipe")]), "pipe"),
    ):
        with pytest.raises(ValueError, match=named):
            files.check()


def test_files_are_options_and_fields():
    text = OwnText(OwnFiles(["a.en", "b.en"], ["a.de", "b.de"]), {"test": OwnFiles(["t.tsv"])})
    files = ["--source", "a.en", "--source", "b.en", "--target", "a.de", "--target", "b.de"]
    assert text.options() == [*files, "--test-source", "t.tsv"]
    assert text.train.fields() == {"source": ["a.en", "b.en"], "target": ["a.de", "b.de"]}
    assert text.held_out["test"].fields() == {"source": "t.tsv"}
    assert str(text.train) == "a.en and a.de and 2 more"
