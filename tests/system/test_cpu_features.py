"""Which processors count as computing fast in bfloat16."""

import pytest
import torch

from admin_nmt.system.cpu_features import cpu_bfloat16_is_fast


@pytest.fixture
def processor(monkeypatch):
    """Sets what PyTorch finds in the processor and may use of it, without a limit in the environment."""

    def of(used: str = "AVX512", **found: bool) -> None:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: used)
        for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
            monkeypatch.delenv(name, raising=False)

    return of


NONE = {"avx512_bf16": False, "amx_bf16": False}


@pytest.mark.parametrize(
    ("used", "found", "limit", "expected"),
    [
        ("AVX2", {}, "", False),
        ("AVX512", {}, "", False),
        ("AVX512", {"avx512_bf16": True}, "", True),
        ("AVX512", {"amx_bf16": True}, "", True),
        ("AVX2", {"avx512_bf16": True}, "", False),  # ATEN_CPU_CAPABILITY=avx2
        ("DEFAULT", {"architecture": "aarch64", "bf16": True}, "", False),  # not measured
        ("AVX512", {"avx512_bf16": True}, "avx512_core", False),
        ("AVX512", {"avx512_bf16": True}, "AVX512_CORE_BF16", True),
        ("AVX512", {"amx_bf16": True}, "AVX512_CORE_AMX", True),
    ],
)
@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_bfloat16_is_fast_where_pytorch_uses_its_instructions(
    processor, monkeypatch, used, found, limit, expected, variable
):
    processor(used, **NONE | found)
    monkeypatch.setenv(variable, limit)
    assert cpu_bfloat16_is_fast() is expected
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert cpu_bfloat16_is_fast() is False


def test_earlier_releases_of_pytorch_are_asked_by_their_functions(processor, monkeypatch):
    processor()
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    for answer in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda answer=answer: answer, raising=False)
        assert cpu_bfloat16_is_fast() is answer
