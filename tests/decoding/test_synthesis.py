"""Synthetic pairs: sides, filters, and the same file whenever and on however many processes it was made."""

import errno
import os
import threading
from pathlib import Path

import pytest
from toy import Killed, KilledAfter, toy_tokenizer

from admin_nmt.data.cleaning import CleaningOptions
from admin_nmt.data.parallel_text import load_parallel
from admin_nmt.decoding import synthesis
from admin_nmt.decoding.synthesis import CUT, synthesize, translate_whole
from admin_nmt.decoding.translator import Translator

FILTERS = CleaningOptions(max_words=8, drop_held_out=None)
LINES = [f"word {number} of the text" for number in range(10)]


def shouter(limit: int | None = None) -> KilledAfter:
    """Writes lines in capitals; after `limit` calls it is killed."""
    return KilledAfter(str.upper, limit)


@pytest.fixture
def text(tmp_path) -> list[Path]:
    """Two files."""
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, part in zip(paths, (LINES[:4], LINES[4:]), strict=True):
        path.write_text("".join(f"{line}\n" for line in part))
    return paths


def make(text, output, translate=None, *, generates="source", settings=None, filters=FILTERS, size=3):
    translate = translate or shouter()
    options = {"generates": generates, "settings": settings or {"model": "abc"}, "filters": filters}
    return synthesize(lambda: translate, text, output, chunk_size=size, **options)


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


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_goes_on_after_a_stop(text, tmp_path, limit):
    with pytest.raises(Killed):
        make(text, tmp_path / "out.tsv", shouter(limit))
    assert not (tmp_path / "out.tsv").exists()
    rest = shouter()
    make(text, tmp_path / "out.tsv", rest)
    assert rest.calls == 4 - limit
    assert read(tmp_path / "out.tsv") == [(line.upper(), line) for line in LINES]


def test_a_stop_while_filtering_loses_no_translation(text, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(synthesis, "clean", shouter(0))
        with pytest.raises((Killed, TypeError)):
            make(text, tmp_path / "out.tsv")
    rest = shouter()
    make(text, tmp_path / "out.tsv", rest)
    assert rest.calls == 0
    assert len(read(tmp_path / "out.tsv")) == 10


def translated_but_not_filtered(text, output, monkeypatch):
    """All lines are in OUTPUT.partial."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(synthesis.SyntheticFile, "finish", lambda self: shouter(0)([]))
        make(text, output)


def test_what_a_kill_while_filtering_left_behind_is_removed(text, tmp_path, monkeypatch):
    translated_but_not_filtered(text, tmp_path / "out.tsv", monkeypatch)
    leftover = tmp_path / ".out.tsv.filtering" / "pairs.arrow.tmp"
    leftover.parent.mkdir()
    leftover.write_text("half of the pairs")
    make(text, tmp_path / "out.tsv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt", "out.tsv"]


@pytest.mark.parametrize("change", ["other", "shorter", "longer"])
def test_text_that_changes_before_it_is_filtered_is_refused(text, tmp_path, monkeypatch, change):
    """Its lines would be paired with the translations of others."""
    finish = synthesis.SyntheticFile.finish
    before = text[1].read_text()
    after = {"other": before.replace("word 7", "word 8"), "shorter": before[:30], "longer": f"{before}more\n"}[change]

    def change_and_finish(file):
        text[1].write_text(after)
        finish(file)

    with monkeypatch.context() as patch:
        patch.setattr(synthesis.SyntheticFile, "finish", change_and_finish)
        with pytest.raises(ValueError, match=r"the input has changed since .*out\.tsv\.partial was begun"):
            make(text, tmp_path / "out.tsv")
    assert not (tmp_path / "out.tsv").exists()
    text[1].write_text(before)
    rest = shouter()
    make(text, tmp_path / "out.tsv", rest)
    assert rest.calls == 0
    assert len(read(tmp_path / "out.tsv")) == 10


def test_a_full_disk_is_named_and_loses_no_translation(text, tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("admin_nmt.data.arrow_cache.pa.OSFile", full)
        with pytest.raises(OSError, match=r"the disk of .* is full"):
            make(text, tmp_path / "out.tsv")
    rest = shouter()
    make(text, tmp_path / "out.tsv", rest)
    assert rest.calls == 0


def test_a_pipe_is_refused_before_it_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: is no regular file; the text is read twice"):
        make([tmp_path / "pipe"], tmp_path / "out.tsv")


def test_lines_that_the_model_would_cut_are_left_out(tiny_model):
    """One token more than the positions, `</s>` and the space in front included, is too many."""
    tokenizer = toy_tokenizer()
    model = tiny_model(vocab_size=len(tokenizer), max_position_embeddings=16)
    translator = Translator(model, tokenizer, num_beams=1)
    whole = "7" * 14
    assert len(tokenizer(whole)["input_ids"]) == 16
    lines = ["ba do", f"{whole}7", "", whole]
    first, cut, blank, last = translate_whole(translator, lines)
    assert (cut, blank) == (CUT, "")
    assert [first, last] == translator.translate(["ba do", whole])
    assert translate_whole(translator, [f"{whole}7"]) == [CUT]


def test_lines_that_the_model_would_cut_are_counted(text, tmp_path):
    """Also those before a stop."""
    lines = set(LINES[1:5])

    def rewrite(line):
        return CUT if line in lines else line.upper()

    with pytest.raises(Killed):
        make(text, tmp_path / "out.tsv", KilledAfter(rewrite, 1))
    counts = make(text, tmp_path / "out.tsv", KilledAfter(rewrite))
    assert read(tmp_path / "out.tsv") == [(line.upper(), line) for line in LINES if line not in lines]
    assert {name: count for name, count in counts.items() if count} == {
        "total": 10,
        "over-long for the model": 4,
        "kept": 6,
    }
    with pytest.raises(ValueError, match=r"none\.tsv: every line is over-long for the model"):
        make(text, tmp_path / "none.tsv", KilledAfter(lambda line: CUT))


def test_filters_that_drop_all_keep_the_translations(text, tmp_path):
    with pytest.raises(ValueError, match=r"out\.tsv: the filters dropped every pair; relax them: .*'over-long': 10"):
        make(text, tmp_path / "out.tsv", filters=CleaningOptions(max_words=2))
    assert not (tmp_path / "out.tsv").exists()
    rest = shouter()
    assert make(text, tmp_path / "out.tsv", rest)["kept"] == 10
    assert rest.calls == 0


def test_other_settings_and_other_text_are_refused(text, tmp_path):
    with pytest.raises(Killed):
        make(text, tmp_path / "out.tsv", shouter(2))
    with pytest.raises(ValueError, match="was made with model abc, not xyz"):
        make(text, tmp_path / "out.tsv", settings={"model": "xyz"})
    with pytest.raises(ValueError, match="the first 6 lines of the input are not those"):
        make(text[::-1], tmp_path / "out.tsv")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_second_process_takes_part_in_every_chunk_and_writes_nothing(text, tmp_path, monkeypatch, stopped):
    """Two threads stand for two processes that exchange their objects and meet at every chunk."""
    if stopped:
        with pytest.raises(Killed):
            make(text, tmp_path / "out.tsv", shouter(2))
    barrier, rank, slots = threading.Barrier(2, timeout=20), threading.local(), [None, None]

    def gather(value):
        slots[rank.own] = value
        barrier.wait()
        return list(slots)

    monkeypatch.setattr(synthesis, "rank_and_size", lambda: (rank.own, 2))
    monkeypatch.setattr(synthesis, "gather_objects", gather)
    seen, counts = [[], []], [None, None]

    def translate(lines):
        barrier.wait()
        seen[rank.own].append(lines)
        return [line.upper() for line in lines]

    def process(own):
        rank.own = own
        counts[own] = make(text, tmp_path / "out.tsv", translate)

    threads = [threading.Thread(target=process, args=(own,)) for own in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[0] == seen[1]
    assert len(seen[0]) == (2 if stopped else 4)
    assert counts[0]["kept"] == 10
    assert counts[1] == {}
    assert read(tmp_path / "out.tsv") == [(line.upper(), line) for line in LINES]
