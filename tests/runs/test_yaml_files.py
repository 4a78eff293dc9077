"""Overrides, as recipes and grids read them."""

import pytest

from admin_nmt.runs.yaml_files import load_yaml, parse_overrides, set_field, yaml_text


def test_values_of_overrides_are_yaml():
    arguments = ["--a.b", "1e-3", "--c", "[x, no]", "--a", "{b: null}", "--c", "3"]
    assert parse_overrides(arguments) == [("a.b", 1e-3), ("c", ["x", False]), ("a", {"b": None}), ("c", 3)]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--a.b", "1", "--c"], "--c: "),
        (["--a.b", "2024-13-45"], "--a.b 2024-13-45: "),
        (["--a.b", "1", "c", "2"], "c: "),
    ],
)
def test_an_argument_that_is_no_override_is_named(arguments, named):
    with pytest.raises(ValueError) as error:
        parse_overrides(arguments)
    assert str(error.value).startswith(named)


@pytest.mark.parametrize("text", ["runs/x", "my run #2", "2024", "null", "", "é\U0001f600"])
def test_a_text_is_a_value(text):
    assert parse_overrides(["--a", yaml_text(text)]) == [("a", text)]
    assert yaml_text("runs/x") == "runs/x"


def test_a_field_is_set_in_a_section_that_is_made():
    values = {"a": {"b": 1}}
    for name, value in [("a.c", 2), ("d.e.f", 3), ("g", 4)]:
        set_field(values, name, value)
    assert values == {"a": {"b": 1, "c": 2}, "d": {"e": {"f": 3}}, "g": 4}
    with pytest.raises(ValueError, match=r"^--a\.b\.x: "):
        set_field(values, "a.b.x", 5)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: 1\nb: {c: 1,\n  c: 2}\n", "line 3, column 3: .* c stands twice"),
        ("? [1]\n: 2\n", "line 1, column 3: "),
        ("a: 2024-13-45\n", "month"),
        ("a: \xff\n", "UTF-8 at byte 4"),
        ("a: &a\n  <<: *a\n", "line 1, .* alias"),
        (
            "l0: &l0 [x]\n" + "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]\n" for i in range(1, 10)),
            "values",
        ),
        (f"a: {'[' * 5000}", "recursion"),
    ],
)
def test_a_damaged_file_is_named_with_the_line(tmp_path, text, named):
    (tmp_path / "x.yaml").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=f"^mine: .*{named}"):
        load_yaml(tmp_path / "x.yaml", "mine")


def test_a_field_may_replace_one_that_is_merged(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &a {b: 1, c: 2}\nd:\n  <<: *a\n  b: 3\n")
    assert load_yaml(tmp_path / "x.yaml")["d"] == {"b": 3, "c": 2}
