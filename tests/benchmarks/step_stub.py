"""Stands for the process of a step, without its imports: the step's name says what it does."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from admin_nmt.benchmarks.gpu.gpu_setup import Setup
from admin_nmt.benchmarks.gpu.step_runner import Step, log_file, write_result

print("ready", flush=True)
line = sys.stdin.readline()
if line:
    task = json.loads(line)
    places, step = task["setup"], Step(**task["step"])
    setup = Setup(Path(places["output"]), Path(places["grid"]))
    runs = setup.output / f"runs-{step.name}"
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    if step.name.startswith("dies"):
        log_file(setup, step.name).write_text("Segmentation fault\n")
        os._exit(3)
    if step.name.startswith("hangs") and len(runs.read_text()) == 1:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (setup.output / "child").write_text(str(child.pid))
        time.sleep(600)
    write_result(setup, step, "done", {"result": {"runs": len(runs.read_text())}})
