"""Threads beside other programs."""

import psutil
import pytest
import torch

from admin_nmt.system.processes import leave_busy_cores


@pytest.mark.skipif(torch.accelerator.is_available(), reason="threads of a CPU")
@pytest.mark.parametrize(("busy", "left"), [(0.0, 4), (10.0, 4), (50.0, 2), (80.0, 1), (100.0, 1)])
def test_a_run_takes_the_cores_that_others_leave(monkeypatch, capsys, busy, left):
    threads = torch.get_num_threads()
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: busy)
    try:
        torch.set_num_threads(4)
        leave_busy_cores()
        assert torch.get_num_threads() == 4  # as the user has set them
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        leave_busy_cores()
        assert torch.get_num_threads() == left
        assert ("OMP_NUM_THREADS" in capsys.readouterr().out) == (left < 4)
    finally:
        torch.set_num_threads(threads)
