"""The tests that need a GPU, and transformers' common model tests, each run by its own program."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import torch

from .gpu_setup import Setup

MARK = "pytest.mark.gpu"
CHECKOUT = Path(__file__).parents[3]


def run_gpu_tests(setup: Setup) -> dict[str, Any]:
    """`pytest -m gpu` of this checkout, in one process: how many passed, failed and were skipped, and which failed.

    Raises:
        FileNotFoundError: there are no tests, as in an installed wheel.
    """
    tests = CHECKOUT / "tests"
    if not tests.is_dir():
        raise FileNotFoundError(f"{tests}: is missing; run this in a checkout of the project")
    report = setup.output / "gpu-tests.xml"
    report.unlink(missing_ok=True)
    # The others are not even read: they need what is installed for development alone.
    files = [str(path) for path in sorted(tests.rglob("test_*.py")) if MARK in path.read_text(encoding="utf-8")]
    options = ["-o", "addopts=", "-m", "gpu", "-p", "no:cacheprovider", "--tb=short", "-q"]
    options += [f"--junitxml={report.absolute()}", *files]
    device = {} if torch.cuda.is_available() else {"ADMIN_NMT_TEST_DEVICE": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=CHECKOUT, env=os.environ | device, check=False
    )
    if not report.exists():
        raise RuntimeError(f"pytest ended with exit code {done.returncode} before any test; its output is in the log")
    return test_counts(report)


def test_counts(report: Path) -> dict[str, Any]:
    """What a JUnit report says."""
    suite = next(ElementTree.parse(report).iter("testsuite"))
    counts = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = {
        f"{case.get('classname')}::{case.get('name')}": (problem.get("message") or "").partition("\n")[0][:300]
        for case in suite.iter("testcase")
        for problem in (*case.iter("failure"), *case.iter("error"))
    }
    passed = counts["tests"] - counts["failures"] - counts["errors"] - counts["skipped"]
    return counts | {"passed": passed, "failed": failed}


def conformance_program() -> Path:
    """The program that runs transformers' common tests, where the shared folder has it.

    Raises:
        FileNotFoundError: there is none.
    """
    shared = Path(os.environ.get("ADMIN_NMT_SHARED", CHECKOUT.parent / "shared"))
    program = shared / "conformance" / "run.py"
    if not program.is_file():
        raise FileNotFoundError(f"{program}: is missing; set ADMIN_NMT_SHARED to the folder that has it")
    return program


def run_conformance(setup: Setup, variant: str, only: str | None = None) -> dict[str, Any]:
    """transformers' common model tests of one variant, which choose CUDA where there is one.

    The first call fetches them from PyPI into the folder of results, where later calls find them.

    Args:
        variant: value of `model.variant`.
        only: pytest's -k.
    """
    program = conformance_program()
    cache = {"CONFORMANCE_CACHE": str((setup.output / "conformance").absolute())}
    command = [sys.executable, str(program), "--variant", variant, *(["-k", only] if only else [])]
    done = subprocess.run(command, cwd=CHECKOUT, env=os.environ | cache, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    counts = {
        name: int(number) for number, name in re.findall(r"(\d+) (passed|failed|skipped|deselected)", done.stdout)
    }
    if not counts:
        raise RuntimeError(f"{program.name} ended with exit code {done.returncode} before any test; see the log")
    failed = dict.fromkeys(re.findall(r"^FAILED \S*?::(\S+)", done.stdout, re.MULTILINE), "")
    return {"variant": variant, "passed": 0, "skipped": 0, "failed": failed} | {
        name: counts[name] for name in ("passed", "skipped") if name in counts
    }


def fetch_conformance(setup: Setup) -> dict[str, Any]:
    """The common tests, fetched and not run: a machine with a GPU may have no network."""
    return run_conformance(setup, "admin", only="no_test_has_this_name")
