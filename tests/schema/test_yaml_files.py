"""Overrides, as recipes and grids read them."""

import pytest

from admin_nmt.schema.yaml_files import parse_overrides, set_field


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
        (["--a.b", "1", "c", "2"], "c: is no override; write --section.field value"),
    ],
)
def test_an_argument_that_is_no_override_is_named(arguments, message):
    with pytest.raises(ValueError) as error:
        parse_overrides(arguments)
    assert str(error.value) == message


def test_a_field_is_set_in_a_section_that_is_made():
    values = {"a": {"b": 1}}
    for name, value in [("a.c", 2), ("d.e.f", 3), ("g", 4)]:
        set_field(values, name, value)
    assert values == {"a": {"b": 1, "c": 2}, "d": {"e": {"f": 3}}, "g": 4}
    with pytest.raises(ValueError, match=r"^--a\.b\.x: holds 1 where fields with values belong$"):
        set_field(values, "a.b.x", 5)
