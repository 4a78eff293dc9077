"""Features of the CPU, as far as PyTorch and oneDNN, which computes its products of matrices, may use them."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

# What limits oneDNN to instruction sets without products of bfloat16; it takes any other name for no limit.
# https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html
WITHOUT_BFLOAT16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}


def cpu_bfloat16_is_fast() -> bool:
    """True where products of bfloat16 have instructions of their own: AMX, or those of AVX-512.

    Other processors emulate them, which takes longer than float32. `ATEN_CPU_CAPABILITY` and `ONEDNN_MAX_CPU_ISA`
    switch the instructions off; oneDNN reads its variable at its first product.
    """
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return False
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not _onednn_may_use_bfloat16():
        return False
    return _has("avx512_bf16", "_is_avx512_bf16_supported") or _has("amx_bf16", "_is_amx_tile_supported")


def cpu_name() -> str:
    """The processor's name, or its architecture where the system does not tell."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def capabilities() -> dict[str, Any]:
    """Capabilities of the processor, by the names of `torch.cpu.get_capabilities`; {} where it has none."""
    found = getattr(torch.cpu, "get_capabilities", dict)
    return dict(found())


def _onednn_may_use_bfloat16() -> bool:
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    return limit.upper() not in WITHOUT_BFLOAT16


def _has(capability: str, function: str) -> bool:
    """A capability by its public name, or by the function that earlier releases of PyTorch ask."""
    if capability in capabilities():
        return bool(capabilities()[capability])
    asked = getattr(torch.cpu, function, None)
    return bool(asked is not None and asked())
