"""The allocator's settings, which last for the process."""

import platform

import pytest
import torch

from admin_nmt.trainer.process_memory import keep_freed_memory


def page_faults_of_a_large_tensor() -> int:
    import resource  # not on Windows

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_a_large_tensor_reuses_freed_memory():
    assert keep_freed_memory()
    # Without reuse it takes one for each of its 16,384 pages, every time.
    assert min(page_faults_of_a_large_tensor() for _ in range(8)) < 1000
