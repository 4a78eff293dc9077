"""Reading parallel text: what is written comes back unchanged, and what is wrong is named by file and line."""

import gzip
import json
import os
import threading
from pathlib import Path

import pytest
from datasets import Dataset, Features, Translation
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from admin_nmt.data.corpora import read_corpora
from admin_nmt.data.parallel_text import load_parallel
from admin_nmt.data.text_lines import read_lines

PAIRS = [("a house", "ein Haus"), ("", "leer"), (' "quoted"\u2028one line', "mit\x0cSeiten\x85vorschub\r und Ü 😀")]
LINES = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8)


@pytest.fixture
def write(tmp_path):
    """Writes bytes or text into a file of the test's folder, compressed if its name says so."""

    def write(name: str, content: str | bytes) -> Path:
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


@pytest.fixture
def load(tmp_path):
    """`load_parallel` with a cache of its own, as a list of pairs."""

    def load(*paths, **options) -> list[tuple[str, str]]:
        dataset = load_parallel(*paths, cache_dir=tmp_path / "cache", **options)
        assert dataset.column_names == ["source", "target"]
        return list(zip(dataset["source"], dataset["target"], strict=True))

    return load


def lines(texts) -> str:
    return "".join(text + "\n" for text in texts)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz", "x.jsonl", "x.jsonl.gz", "x.parquet"])
def test_files_of_pairs_in_both_directions(write, load, tmp_path, name, nested):
    records = [{"en": source, "de": target} for source, target in PAIRS]
    if name == "x.parquet" and nested:
        features = Features({"translation": Translation(["en", "de"])})
        Dataset.from_list([{"translation": r} for r in records], features=features).to_parquet(tmp_path / name)
    elif name == "x.parquet":
        Dataset.from_list(records).to_parquet(tmp_path / name)
    elif ".jsonl" in name:
        write(name, lines(json.dumps({"id": 7, "translation": r} if nested else r) for r in records))
    else:
        write(name, lines("\t".join(pair) for pair in PAIRS))
        assert load(tmp_path / name) == PAIRS
        return
    assert load(tmp_path / name, columns=["en", "de"]) == PAIRS
    assert load(tmp_path / name, columns=["de", "en"]) == [(target, source) for source, target in PAIRS]


@pytest.fixture
def pipe(tmp_path):
    """Makes a named pipe, into which a thread writes these bytes once."""

    def make(name: str, content: bytes) -> Path:
        path = tmp_path / name
        os.mkfifo(path)
        threading.Thread(target=path.write_bytes, args=(content,), daemon=True).start()
        return path

    return make


def test_pipes_are_read_once(pipe, load, write):
    sources, targets = (lines(side).encode() for side in zip(*PAIRS, strict=True))
    assert load(write("x.en", sources), write("x.de.gz", targets)) == PAIRS  # as files are
    assert load(pipe("a.en", sources), pipe("a.de", targets)) == PAIRS
    assert load(write("b.en", sources), pipe("b.de.gz", gzip.compress(targets))) == PAIRS
    assert load(pipe("c.tsv", b"a\tb\n")) == [("a", "b")]
    with pytest.raises(ValueError, match=r"d\.de: line 1 is not valid UTF-8"):
        load(pipe("d.en", b"a\n"), pipe("d.de", b"\xff\n"))


def test_what_cannot_come_from_a_pipe_is_refused(tmp_path, load, write):
    """Refused before anything waits for the writer."""
    os.mkfifo(pipe := tmp_path / "pipe")
    several = ([write("x.en", "a\n"), pipe], [write("x.de", "b\n"), write("y.de", "b\n")])
    for sides in ((pipe, pipe), (pipe,), several):
        with pytest.raises(ValueError, match="pipe"):
            load(*sides)
    with pytest.raises(ValueError, match=r"data\.train: .*pipe"):
        read_corpora({"train": {"source": str(pipe), "target": str(pipe)}}, cache_dir=tmp_path)


@pytest.mark.parametrize("pattern", [True, False])
def test_a_corpus_in_several_files(write, load, tmp_path, pattern):
    files = {side: [write(f"{n}.{side}", f"{side} {n}\n" * (n + 1)) for n in range(3)] for side in ("en", "de")}
    given = (f"{tmp_path}/*.en", f"{tmp_path}/?.de") if pattern else (files["en"], files["de"])
    assert load(*given) == [(f"en {n}", f"de {n}") for n in (0, 1, 1, 2, 2, 2)]


def test_a_test_set_of_sacrebleu(write, load, monkeypatch):
    paths = {"source": write("wmt12.en", "a house\n"), "reference": write("wmt12.fr", "une maison\n")}
    monkeypatch.setattr("sacrebleu.get_source_file", lambda name, pair: paths[{"wmt12en-fr": "source"}[name + pair]])
    monkeypatch.setattr("sacrebleu.get_reference_files", lambda name, pair: [paths["reference"]])
    assert load("sacrebleu:wmt12", columns=["en", "fr"]) == [("a house", "une maison")]
    with pytest.raises(OSError, match="sacrebleu:wmt11: sacreBLEU cannot give en-fr"):
        load("sacrebleu:wmt11", columns=["en", "fr"])


def test_what_the_datasets_library_knows_by_name(tmp_path, load):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "train.csv").write_text("en,de\na house,ein Haus\n")
    (folder / "validation.csv").write_text("en,de\na mouse,eine Maus\n")
    assert load(folder, columns=["en", "de"]) == [("a house", "ein Haus")]
    assert load(folder, columns=["en", "de"], split="validation") == [("a mouse", "eine Maus")]
    with pytest.raises(ValueError, match=r"corpus: .*dev"):
        load(folder, columns=["en", "de"], split="dev")


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINES, min_size=1))
def test_lines_end_at_line_feeds_only(write, texts):
    expected = [text.removesuffix("\r") for text in texts]
    expected[0] = texts[0].removeprefix("\ufeff").removesuffix("\r")
    assert list(read_lines(write("x", lines(texts)))) == expected


FAULTY = [
    ({"x.en": "a\nb\nc\n", "x.de": "a\n"}, r"x\.en has 3 lines and .*x\.de has 1: line 2"),
    ({"x.en": "a\nb\n", "x.de": b"a\nb\xff\xfec\n"}, r"x\.de: line 2 .*byte 0xff at column 2"),
    ({"x.en": "a\n", "x.de": "a\n".encode("utf-16")}, r"x\.de: line 1 .*UTF-16"),
    ({"x.tsv": lines(["a\tb"] * 5000 + ["a\tb\tc"])}, r"x\.tsv: line 5001"),
    ({"x.tsv.gz": gzip.compress(b"a\tb\n" * 9)[:-4]}, r"x\.tsv\.gz: .*damaged"),
    ({"x.jsonl": '{"source": "a"}\n'}, r"x\.jsonl: line 1 .*'target'"),
    ({"x.jsonl": '{"source": "a", "target": "b"}\n{"source": "a", "target": 1}\n'}, r"x\.jsonl: line 2"),
    ({"x.jsonl": "[" * 100_000}, r"x\.jsonl: line 1"),
    ({"x.jsonl": '{"source": "a", "target": "\\ud83d"}\n'}, r"x\.jsonl: line 1 .*surrogate"),
    ({"x.parquet": "PAR2 and other rubbish"}, r"x\.parquet: .*Parquet"),
    ({"a.en": "a\n", "b.en": "b\n", "a.de": "a\n"}, r"2 files .*a\.en .*b\.en.* 1 .*a\.de"),
]


@pytest.mark.parametrize(("files", "named"), FAULTY)
def test_faulty_files_are_named_and_leave_no_cache(tmp_path, load, files, named):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    of_pairs = [tmp_path / name for name in files if not name.endswith((".en", ".de"))]
    with pytest.raises(ValueError, match=named):
        load(*(of_pairs or [f"{tmp_path}/*.en", f"{tmp_path}/*.de"]))
    assert not list((tmp_path / "cache").rglob("*.arrow"))


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"source": ["a"], "other": ["b"]}, "no column 'target'"),
        ({"source": ["a"], "target": [["b"]]}, "'target' holds List"),
        ({"source": ["a", "b"], "target": ["b", None]}, "'target' has rows without text"),
        ({"source": [], "target": []}, "no data"),
    ],
)
def test_faulty_columns_are_named(tmp_path, load, columns, named):
    Dataset.from_dict(columns).to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=rf"x\.parquet: .*{named}"):
        load(tmp_path / "x.parquet")


def test_a_field_called_translation_may_be_a_text(write, load):
    line = '{"text": "a b", "translation": "c d"}\n'
    assert load(write("x.jsonl", line), columns=["text", "translation"]) == [("a b", "c d")]
    line = '{"translation": null, "source": "a", "target": "b"}\n'
    assert load(write("y.jsonl", line)) == [("a", "b")]


def test_a_name_with_brackets_is_a_name_where_there_is_such_a_file(tmp_path, load):
    for folder, text in (("v[1]", "meant"), ("v1", "other")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.tsv").write_text(f"{text}\tx\n")
    assert load(tmp_path / "v[1]" / "a.tsv") == [("meant", "x")]


def test_cache_follows_the_content_and_not_the_date(write, load, tmp_path, monkeypatch):
    path = write("x.tsv", "a\tb\n")
    assert load(path) == [("a", "b")]
    with monkeypatch.context() as patch:
        patch.setattr("hashlib.file_digest", lambda *_: pytest.fail("read a file that nobody has touched"))
        assert load(path) == [("a", "b")]
    date = path.stat()
    path.write_text("a\tc\n")
    os.utime(path, ns=(date.st_atime_ns, date.st_mtime_ns))
    assert load(path) == [("a", "c")]
    path.rename(tmp_path / "renamed.tsv")
    files = set((tmp_path / "cache").rglob("*.arrow"))
    assert load(tmp_path / "renamed.tsv") == [("a", "c")]
    assert set((tmp_path / "cache").rglob("*.arrow")) == files


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch, name):
    """A few kilobytes of gzip can be one line of any length; reading stops after the longest line that there may be."""
    monkeypatch.setattr("admin_nmt.data.text_lines.LONGEST_LINE", 1000)
    path = tmp_path / name
    opener = gzip.open if name.endswith("gz") else open
    with opener(path, "wb") as file:
        file.write(b"a" * 999 + b"\n" + b"b" * 1_000_000)
    lines = read_lines(path)
    assert next(lines) == "a" * 999
    with pytest.raises(ValueError, match=f"{name}: line 2"):
        next(lines)
