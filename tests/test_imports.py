"""The package imports where the modules that only POSIX has are missing: on Windows, and for the most part on macOS."""

import subprocess
import sys

import pytest

SCRIPT = """
import builtins, importlib, pkgutil

ABSENT = {"fcntl", "grp", "pwd", "resource", "termios"}
original = builtins.__import__


def without_posix(name, globals=None, *args, **kwargs):
    # Of this package alone: the libraries installed here are those for Linux, and import what Linux has.
    if name in ABSENT and globals and globals["__name__"].startswith("admin_nmt"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return original(name, globals, *args, **kwargs)


builtins.__import__ = without_posix
import admin_nmt

for module in pkgutil.walk_packages(admin_nmt.__path__, "admin_nmt."):
    if not module.name.endswith(".__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name != "gradio":  # the extra demo, which not everybody has
                raise
        else:
            print(module.name)
"""


@pytest.mark.slow  # imports everything, in a Python of its own
def test_every_module_imports_without_posix():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"admin_nmt.decoding.file_translation", "admin_nmt.runs.results"} <= set(done.stdout.split())
