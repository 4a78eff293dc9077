"""Which processors count as computing fast in bfloat16."""

import pytest
import torch

from admin_nmt.system import cpu_features
from admin_nmt.system.cpu_features import cpu_bfloat16_is_fast, cpu_facts


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
    ("used", "found", "expected"),
    [
        ("AVX2", NONE, False),
        ("AVX512", NONE, False),
        ("AVX512", NONE | {"avx512_bf16": True}, True),
        ("AVX512", NONE | {"amx_bf16": True}, True),
        ("AVX2", NONE | {"avx512_bf16": True}, False),  # ATEN_CPU_CAPABILITY=avx2
        ("DEFAULT", {"architecture": "aarch64", "bf16": True, **NONE}, False),  # not measured
    ],
)
def test_bfloat16_is_fast_where_there_are_instructions_that_pytorch_uses(processor, used, found, expected):
    processor(used, **found)
    assert cpu_bfloat16_is_fast() is expected


@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
@pytest.mark.parametrize(
    ("limit", "expected"),
    [("AVX2", False), ("avx512_core", False), ("AVX512_CORE_BF16", True), ("AVX512_CORE_AMX", True), ("", True)],
)
def test_a_limit_of_onednn_counts(processor, monkeypatch, variable, limit, expected):
    processor(avx512_bf16=True, amx_bf16=True)
    monkeypatch.setenv(variable, limit)
    assert cpu_bfloat16_is_fast() is expected


@pytest.mark.parametrize(("answer", "expected"), [(True, True), (False, False)])
def test_earlier_releases_of_pytorch_are_asked_by_their_functions(processor, monkeypatch, answer, expected):
    processor()
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: answer, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False, raising=False)
    assert cpu_bfloat16_is_fast() is expected


def test_without_onednn_nothing_is_fast(processor, monkeypatch):
    processor(avx512_bf16=True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert cpu_bfloat16_is_fast() is False


def test_the_facts_of_this_machine(monkeypatch):
    facts = cpu_facts()
    assert facts["name"] and facts["threads"] == torch.get_num_threads()
    assert 1 <= facts["cores"] <= facts["logical_cores"]
    assert facts["fast_bfloat16"] is cpu_bfloat16_is_fast()
    monkeypatch.setattr(cpu_features, "capabilities", dict)
    assert cpu_facts()["flags"] == []
