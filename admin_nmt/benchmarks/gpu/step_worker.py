"""The process of a step: `python -m admin_nmt.benchmarks.gpu.step_worker`, which reads its step from stdin."""

import json
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ...runs.results import commit, device_name
from ...trainer.allocator import let_segments_grow
from .gpu_setup import Setup
from .step_runner import Step, log_file, write_result

IMPORTED = ("update_speed", "grid_step")  # between them all that takes seconds to load
PACKAGES = ("torch", "transformers", "accelerate", "ctranslate2")


def facts() -> dict[str, Any]:
    """The device and the versions that a result was measured with."""
    found: dict[str, Any] = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        found |= {"cuda": torch.version.cuda, "memory": torch.cuda.get_device_properties(device).total_memory}
    return {"device": device_name(device), "versions": found, "commit": commit(), "time": time.strftime("%F %T")}


def interrupted(number: int, frame: Any) -> None:
    """Asked to stop: as an interrupt, which a training hands on to its processes."""
    raise KeyboardInterrupt


def run(step: Step, setup: Setup, known: dict[str, Any]) -> None:
    """Do a step and leave its result, or the error that it raised."""
    module, name = step.function.split(":")
    start = time.perf_counter()
    try:
        value = {"result": getattr(import_module(f".{module}", __package__), name)(setup, **step.arguments)}
        status = "done"
    except KeyboardInterrupt:  # it was stopped: whoever did so says why
        raise
    except BaseException as error:  # whatever a step raises is its result, out of memory and an exit among them
        traceback.print_exc()
        value, status = {"error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:500]}"}, "failed"
    write_result(setup, step, status, {"seconds": time.perf_counter() - start} | known | facts() | value)


def main() -> None:
    """Import what all steps need, then wait for one; its output goes to its log."""
    let_segments_grow()  # as a training does, before anything asks for memory
    for name in IMPORTED:
        import_module(f".{name}", __package__)
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        return
    task = json.loads(line)
    places = task["setup"]
    data = None if places["data"] is None else Path(places["data"])
    setup = Setup(Path(places["output"]), Path(places["grid"]), data, places["toy"])
    step = Step(**task["step"])
    log = os.open(log_file(setup, step.name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    signal.signal(signal.SIGTERM, interrupted)
    run(step, setup, task["facts"])


if __name__ == "__main__":
    main()
