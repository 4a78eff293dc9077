"""Synthetic pairs: sides, filters, and the same file whenever and on however many processes it was made."""

from pathlib import Path

import pytest
from toy import Killed, KilledAfter, invoke, random_texts

from admin_nmt.data.cleaning import CleaningOptions
from admin_nmt.data.parallel_text import load_parallel
from admin_nmt.decoding import synthesis
from admin_nmt.decoding.synthesis import CUT, synthesize, translate_whole
from admin_nmt.decoding.translator import Translator
from admin_nmt.decoding.worker_processes import one_after_the_other

FILTERS = CleaningOptions(max_words=8, drop_held_out=None)
LINES = [f"word {number} of the text" for number in range(10)]


@pytest.fixture
def text(tmp_path) -> list[Path]:
    """Two files of monolingual text."""
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, part in zip(paths, (LINES[:4], LINES[4:]), strict=True):
        path.write_text("".join(f"{line}\n" for line in part))
    return paths


def make(text, output, translate=None, *, generates="source", settings=None, filters=FILTERS, size=3):
    translate = translate or KilledAfter(str.upper)
    options = {"generates": generates, "settings": settings or {"model": "abc"}, "filters": filters}
    return synthesize(one_after_the_other(translate), text, output, chunk_size=size, **options)


def read(path: Path) -> list[tuple[str, str]]:
    return [tuple(line.split("\t")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("generates", ["source", "target"])
def test_each_side(text, tmp_path, generates):
    counts = make(text, tmp_path / "out.tsv", generates=generates)
    expected = [(line.upper(), line) if generates == "source" else (line, line.upper()) for line in LINES]
    assert read(tmp_path / "out.tsv") == expected
    assert counts["kept"] == counts["total"] == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "out.tsv"]
    pairs = load_parallel(tmp_path / "out.tsv", cache_dir=tmp_path / "cache")
    assert pairs["source"][:] == [pair[0] for pair in expected]


def test_filters_and_their_counts(tmp_path):
    rows = {
        "this is fine": "das ist gut",
        "": "nichts",
        "nothing": " ",
        "one two three four five six seven eight nine": "neun",
        "a b c d e f g h": "z",
        "Berlin 2024": "Berlin 2024",
        "again": "wieder",
        "tabs\tand breaks": "mit\tTab\u2028und Umbruch",
    }
    lines = [*rows, "again"]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    counts = make(
        [tmp_path / "in.txt"], tmp_path / "out.tsv", lambda part: [rows[line] for line in part], generates="target"
    )
    kept = [("this is fine", "das ist gut"), ("again", "wieder"), ("tabs and breaks", "mit Tab und Umbruch")]
    assert read(tmp_path / "out.tsv") == kept
    assert counts == {"total": 9, "empty side": 2, "over-long": 1, "length ratio": 1, "copy": 1, "duplicate": 1} | {
        "over-long for the model": 0,
        "held out": 0,
        "kept": 3,
    }


@pytest.mark.parametrize("change", ["other", "longer"])
def test_text_that_changes_before_it_is_filtered_is_refused(text, tmp_path, monkeypatch, change):
    """Its lines would be paired with the translations of others."""
    finish = synthesis.SyntheticFile.finish
    before = text[1].read_text()
    after = {"other": before.replace("word 7", "word 8"), "longer": f"{before}more\n"}[change]

    def change_and_finish(file):
        text[1].write_text(after)
        finish(file)

    with monkeypatch.context() as patch:
        patch.setattr(synthesis.SyntheticFile, "finish", change_and_finish)
        with pytest.raises(ValueError, match=r"out\.tsv\.partial"):
            make(text, tmp_path / "out.tsv")
    assert not (tmp_path / "out.tsv").exists()
    text[1].write_text(before)
    rest = KilledAfter(str.upper)
    make(text, tmp_path / "out.tsv", rest)
    assert rest.calls == 0
    assert len(read(tmp_path / "out.tsv")) == 10


def test_lines_that_the_model_would_cut_are_left_out(tiny_model, tokenizer):
    """One token more than the positions, `</s>` and the space in front included, is too many."""
    model = tiny_model(vocab_size=len(tokenizer), max_position_embeddings=16)
    translator = Translator(model, tokenizer, num_beams=1)
    whole = "7" * 14
    assert len(tokenizer(whole)["input_ids"]) == 16
    first, last = translator.translate(["ba do", whole])
    assert translate_whole(translator, ["ba do", f"{whole}7", "", whole]) == [first, CUT, "", last]
    assert translate_whole(translator, [f"{whole}7"]) == [CUT]


def test_lines_that_the_model_would_cut_are_counted(text, tmp_path):
    """Also those before a stop."""
    cut = set(LINES[1:5])
    lines = dict(zip(LINES, map(str.upper, LINES), strict=True)) | dict.fromkeys(cut, CUT)
    with pytest.raises(Killed):
        make(text, tmp_path / "out.tsv", KilledAfter(lines.get, 1))
    counts = make(text, tmp_path / "out.tsv", KilledAfter(lines.get))
    assert read(tmp_path / "out.tsv") == [(line.upper(), line) for line in LINES if line not in cut]
    assert (counts["total"], counts["over-long for the model"], counts["kept"]) == (10, 4, 6)


@pytest.mark.slow
def test_two_processes_write_the_bytes_of_one(model_folder, tmp_path):
    (tmp_path / "mono").write_text("".join(f"{line}\n" for line in random_texts(30)))
    command = ["synthesize", model_folder, "--input", tmp_path / "mono", "--generates", "source", "--sampling"]
    options = ["--chunk", 10, "--max-ratio", 0, "--max-words", 1000, "--output"]
    for name, processes in (("one.tsv", 1), ("two.tsv", 2)):
        assert "kept" in invoke(*command, "--processes", processes, *options, tmp_path / name).stdout
    assert (tmp_path / "one.tsv").read_bytes() == (tmp_path / "two.tsv").read_bytes()
    assert {target for _, target in read(tmp_path / "one.tsv")} <= set((tmp_path / "mono").read_text().splitlines())
