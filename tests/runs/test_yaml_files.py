"""Overrides, as recipes and grids read them."""

import pytest

from admin_nmt.runs.yaml_files import load_yaml, parse_overrides, set_field, yaml_text


def test_values_of_overrides_are_yaml():
    arguments = ["--a.b", "1e-3", "--c", "[x, no]", "--a", "{b: null}", "--c", "3"]
    assert parse_overrides(arguments) == [("a.b", 1e-3), ("c", ["x", False]), ("a", {"b": None}), ("c", 3)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--a.b", "1", "--c"], "--c: has no value; write --section.field value"),
        (
            ["--a.b", "x: y: z"],
            "--a.b x: y: z: is not valid YAML: mapping values are not allowed here; put quotes around text",
        ),
        (["--a.b", "2024-13-45"], "--a.b 2024-13-45: month must be in 1..12; put quotes around text"),
        (["--a.b", "1", "c", "2"], "c: is no override; write --section.field value"),
    ],
)
def test_an_argument_that_is_no_override_is_named(arguments, message):
    with pytest.raises(ValueError) as error:
        parse_overrides(arguments)
    assert str(error.value) == message


@pytest.mark.parametrize("text", ["runs/x", "my run #2", "2024", "null", "a: b", "", "é\U0001f600", "2024-13-45"])
def test_a_text_is_a_value(text):
    assert parse_overrides(["--a", yaml_text(text)]) == [("a", text)]
    assert yaml_text("runs/x") == "runs/x"


def test_a_field_is_set_in_a_section_that_is_made():
    values = {"a": {"b": 1}}
    for name, value in [("a.c", 2), ("d.e.f", 3), ("g", 4)]:
        set_field(values, name, value)
    assert values == {"a": {"b": 1, "c": 2}, "d": {"e": {"f": 3}}, "g": 4}
    with pytest.raises(ValueError, match=r"^--a\.b\.x: expected a mapping, got 1$"):
        set_field(values, "a.b.x", 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1,\n  c: 2}\n", "line 3, column 3: is not valid YAML: c stands twice"),
        ("a: 1\n\tb: 2\n", "line 2, column 1: is not valid YAML: found character '\\t' that cannot start any token"),
        ("a: b: c\n", "line 1, column 5: is not valid YAML: mapping values are not allowed here"),
        ("? [1]\n: 2\n", "line 1, column 3: is not valid YAML: found unhashable key"),
        ("a: 2024-13-45\n", "month must be in 1..12; put quotes around text"),
        ("a: \xff\n", "is not valid UTF-8 at byte 4; convert the file to UTF-8"),
        ("", "expected a mapping, got null"),
    ],
)
def test_a_damaged_file_is_told_by_name_and_line(tmp_path, text, message):
    (tmp_path / "x.yaml").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError) as error:
        load_yaml(tmp_path / "x.yaml", "mine")
    assert str(error.value) == f"mine: {message}"


def test_a_field_may_replace_one_that_is_merged(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &a {b: 1, c: 2}\nd:\n  <<: *a\n  b: 3\n")
    assert load_yaml(tmp_path / "x.yaml")["d"] == {"b": 3, "c": 2}
