"""Synthetic pairs: sides, filters, and the same file whenever and on however many processes it was made."""

import threading
from pathlib import Path

import pytest
from toy import Killed, KilledAfter

from admin_nmt import synthesis
from admin_nmt.cleaning import CleaningOptions
from admin_nmt.parallel_text import load_parallel
from admin_nmt.synthesis import synthesize

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
