"""What a measurement depends on: the machine, the libraries, the code, and what else the machine was doing."""

import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil
import torch

from ...runs.results import commit
from ...system.cpu_features import cpu_facts
from ..preparation_meter import cpu_seconds

PACKAGES = ("torch", "transformers", "ctranslate2", "tokenizers", "datasets", "accelerate", "numpy", "admin_nmt")
# Variables that change what the libraries use of the processor.
LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
SAME = ("name", "flags", "used", "cores", "threads")  # of the CPU, in measurements that one page may show
# What vendors put around the name of a processor: trademarks, its clock, the number of its cores.
ORNAMENTS = re.compile(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|\b\d+-core\b|@.*$", re.IGNORECASE)


def machine_facts() -> dict[str, Any]:
    """The machine and the versions, as machine.json has them."""
    cpu = cpu_facts()
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "slug": slug(cpu, gpu),
        "cpu": cpu,
        "gpu": gpu,
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "variables": {name: os.environ[name] for name in LIMITS if name in os.environ},
        "versions": versions,
        **moment(),
    }


def slug(cpu: dict[str, Any], gpu: str | None = None) -> str:
    """The folder of a machine: its processor and the instructions in use, such as amd-epyc-avx512-bf16."""
    name = ORNAMENTS.sub(" ", cpu["name"])
    words = [name, instructions(cpu), *([gpu] if gpu else [])]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")


def instructions(cpu: dict[str, Any]) -> str:
    """The widest instructions in use, and whether they multiply bfloat16."""
    if not cpu["fast_bfloat16"]:
        return str(cpu["used"])
    return "AMX" if "amx_bf16" in cpu["flags"] else f"{cpu['used']} bf16"


def moment() -> dict[str, Any]:
    """When, and with what code."""
    return {"commit": commit(), "date": time.strftime("%F %T"), "torch": torch.__version__}


def same_machine(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two measurements can stand on one page."""
    return all(one["cpu"][name] == other["cpu"][name] for name in SAME) and one["gpu"] == other["gpu"]


def load_average() -> float:
    """Processes that computed during the last minute, on the average; 0 where the system does not count them."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


@contextmanager
def other_work() -> Iterator[dict[str, float]]:
    """Around a measurement: its `seconds`, and `others`, the share of all cores that other processes used.

    Of this process and of its children that have ended, the time is its own. A virtual machine's stolen time is
    others'.
    """
    found: dict[str, float] = {}
    start, busy, own = time.perf_counter(), busy_seconds(), cpu_seconds()
    yield found
    seconds = time.perf_counter() - start
    others = (busy_seconds() - busy) - (cpu_seconds() - own)
    found |= {"seconds": seconds, "others": max(0.0, others / seconds / (os.cpu_count() or 1))}


def busy_seconds() -> float:
    """CPU seconds of all processes of the machine since it was started."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, name, 0.0) for name in names)
