"""The layout of the library: rooms of a readable size, imports in one direction, a model that travels by itself."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import admin_nmt

LIBRARY = Path(admin_nmt.__file__).parent
MODULES = sorted(LIBRARY.rglob("*.py"))
# A room imports the rooms before it.
ROOMS = (
    "system", "model", "data", "metrics", "weights", "hub", "decoding", "trainer", "runs", "experiments",
    "demo", "cli",
)  # fmt: skip


def dotted(path: Path) -> tuple[str, ...]:
    """model/omega.py is ("model", "omega")."""
    parts = path.relative_to(LIBRARY).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def room(name: tuple[str, ...]) -> str:
    """The folder of a module below the library, or the module itself at the root."""
    return name[0] if name else "__init__"


def imports(path: Path) -> set[tuple[str, ...]]:
    """Modules of the library that a file imports when it runs, inside functions too; those for types alone are not."""
    known, found = {dotted(other) for other in MODULES}, set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    package = dotted(path) if path.name == "__init__.py" else dotted(path)[:-1]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in for_types:
            continue
        parts = tuple((node.module or "").split("."))
        if node.level:
            base = package[: len(package) - node.level + 1] + (parts if node.module else ())
        elif parts[0] == LIBRARY.name:
            base = parts[1:]
        else:
            continue
        found |= {(*base, alias.name) if (*base, alias.name) in known else base for alias in node.names}
    return found


def test_no_file_imports_itself_by_way_of_others():
    TopologicalSorter({dotted(path): imports(path) - {dotted(path)} for path in MODULES}).prepare()


def test_every_import_of_the_library_is_relative():
    """An absolute one takes the public names of the package, whose rooms the other tests would not see."""
    copied = LIBRARY / "metrics" / "evaluate_module.py"  # by evaluate, to a folder of its own
    for path in set(MODULES) - {copied}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not [name for name in names if name.split(".")[0] == LIBRARY.name], path


def test_every_room_has_its_place_in_the_order():
    assert {path.parent.name for path in LIBRARY.glob("*/__init__.py")} == set(ROOMS)


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_imports_only_the_rooms_before_it(name):
    later = set(ROOMS[ROOMS.index(name) + 1 :])
    found = {room(target) for path in (LIBRARY / name).rglob("*.py") for target in imports(path)}
    assert not found & later


def test_the_model_room_is_what_travels_to_the_hub(tiny_model, tmp_path):
    """All of it, and nothing else; every file imports only files beside it, as `from .x import y`."""
    tiny_model().save_pretrained(tmp_path)
    room_files = {path.name: path for path in (LIBRARY / "model").glob("*.py") if path.name != "__init__.py"}
    assert {path.name for path in tmp_path.glob("*.py")} == set(room_files)
    for path in room_files.values():
        assert {target[:-1] for target in imports(path)} <= {("model",)}
        assert "from . import" not in path.read_text(encoding="utf-8")
