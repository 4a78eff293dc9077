"""YAML files of fields and values, and overrides of their fields from the command line."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ..system.messages import MAPPING, shown

MERGE = "tag:yaml.org,2002:merge"
MOST_VALUES = 100_000
"""Values of a file, with those that its aliases repeat: nine aliases in each of ten lists are ten billion."""


class YamlLoader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number, as everybody but YAML 1.1 expects, and no field stands twice.

    Aliases are refused where they repeat what they stand in, or more than anyone writes.
    """

    def construct_document(self, node: yaml.Node) -> Any:
        """Count the values before they are made."""
        self._values(node, {})
        return super().construct_document(node)

    def _values(self, node: yaml.Node, counted: dict[yaml.Node, int]) -> int:
        """Number of values in a node; those being counted have 0 in `counted`."""
        if node not in counted:
            counted[node] = 0
            below = node.value if isinstance(node, yaml.CollectionNode) else ()
            parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
            counted[node] = 1 + sum(self._values(part, counted) for part in parts)
            if counted[node] > MOST_VALUES:
                raise self._refused(f"has more than {MOST_VALUES:,} values", node)
        elif not counted[node]:
            raise self._refused("an alias repeats what it stands in", node)
        return counted[node]

    @staticmethod
    def _refused(problem: str, node: yaml.Node) -> yaml.constructor.ConstructorError:
        return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a second value of a field, which would silently replace the first."""
        seen = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            if key.value in seen:
                raise self._refused(f"{key.value} stands twice", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


YamlLoader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))


def load_yaml(path: str | Path, called: str | None = None) -> dict[str, Any]:
    """The fields and values of a file.

    Args:
        called: what errors call the file, if not by its path.

    Raises:
        ValueError: naming the file, which holds something else, and the line.
    """
    called = called or str(path)
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), YamlLoader)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{called}: is not valid UTF-8 at byte {error.start + 1}; convert the file to UTF-8"
        ) from error
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise ValueError(f"{called}: {line}is not valid YAML: {problem}") from error
    except ValueError as error:  # of a date that is none
        raise ValueError(f"{called}: {error}; put quotes around text") from error
    _check_mapping(values, called)
    return values


def parse_overrides(arguments: Sequence[str]) -> list[tuple[str, Any]]:
    """[("training.max_steps", 100)] of ["--training.max_steps", "100"]: names with their values, which are YAML.

    Raises:
        ValueError: naming the argument that is no name, has no value or is not valid YAML.
    """
    if len(arguments) % 2:
        raise ValueError(f"{arguments[-1]}: has no value; write --section.field value")
    names, texts = arguments[::2], arguments[1::2]
    for name in names:
        if not name.startswith("--"):
            raise ValueError(f"{name}: is no override; write --section.field value")
    return [(name[2:], _yaml_value(name, text)) for name, text in zip(names, texts, strict=True)]


def yaml_text(text: str) -> str:
    """The text as a value of `parse_overrides`, in quotes where YAML would read another one, such as 2024 or `a #1`."""
    try:
        plain = yaml.load(text, YamlLoader) == text
    except (yaml.YAMLError, ValueError, RecursionError):
        plain = False
    return text if plain else json.dumps(text, ensure_ascii=False)


def _yaml_value(name: str, text: str) -> Any:
    try:
        return yaml.load(text, YamlLoader)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise ValueError(f"{name} {text}: is not valid YAML: {problem}; put quotes around text") from error
    except (ValueError, RecursionError) as error:  # of a date that is none
        raise ValueError(f"{name} {text}: {error}; put quotes around text") from error


def set_field(values: dict[str, Any], name: str, value: Any) -> None:
    """Set a field such as "training.max_steps", in sections that are made where they are absent.

    Raises:
        ValueError: naming the override, whose section is none.
    """
    *sections, last = name.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        _check_mapping(values, f"--{name}")
    values[last] = value


def _check_mapping(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected {MAPPING}, got {shown(value)}")
