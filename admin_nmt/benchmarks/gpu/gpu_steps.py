"""The steps of the GPU benchmark, in the order in which they run: what a card with little time should tell first."""

from collections.abc import Iterator
from typing import Any

from .gpu_setup import PREPARED
from .step_runner import Step

DEPTHS = ((6, 6), (18, 18), (60, 12))
CONFORMANCE = ("admin", "pre_ln", "dlcl_post_ln")  # constant ω and post-LN, pre-LN, a history: what differs in code
TOKENS = (4096, 16384, 57344)
COMPILED = {"compiled", "compile_layers"}  # fields of a case: a compiler takes its time
NOT_PREDICTED = COMPILED | {"cudnn", "attention", "workers", "accumulation"}
SYSTEMS = ("post_ln", "admin", "pre_ln")  # of the grid, with their depths in the names
LOWER_RATE = "admin-60-12-0.0003"  # its learning rate is in its name


def all_steps() -> list[Step]:
    """Every step; the predictions come last, for where nobody made them beforehand: they need no GPU."""
    cases = dict(update_cases())
    return [
        Step("data", "grid_step:prepare_data", {}, 60, 3600, on_cpu=True, resumes=True, leaves=PREPARED),
        Step("fetch-conformance", "checks:fetch_conformance", {}, 30, 180, on_cpu=True, leaves="conformance"),
        Step("tests", "checks:run_gpu_tests", estimate=120, limit=300),
        *(update_step(name, fields) for name, fields in cases.items() if not fields.get("compiled")),
        Step("profile-60-12-4k", "update_speed:profile_update", profiled(), estimate=30, limit=120),
        Step("profile-60-12-4k-master-weights", "update_speed:profile_update", profiled("master_weights"), 30, 120),
        Step("attention-4k", "attention_speed:measure_attention", {"max_tokens": 4096}, estimate=60, limit=240),
        *searches(),
        *trainings(),
        *(conformance(variant) for variant in CONFORMANCE),
        *(update_step(name, fields) for name, fields in cases.items() if fields.get("compiled")),
        *predictions(cases),
    ]


def predictions(cases: dict[str, dict[str, Any]]) -> Iterator[Step]:
    """Memory of the cases."""
    for name, fields in cases.items():
        if predicted(fields):
            yield Step(f"predict-{name}", "update_speed:predict_updates", fields, 60, 300, on_cpu=True)


def predicted(fields: dict[str, Any]) -> bool:
    """Whether the prediction of memory knows what a case changes."""
    return not NOT_PREDICTED & fields.keys() and fields.get("precision") not in ("tf32", "master_weights")


def update_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Updates to measure, each with its name and the fields of `UpdateCase`: first what the recipes do."""
    depths = [{"encoder_layers": encoder, "decoder_layers": decoder} for encoder, decoder in DEPTHS]
    small, _, deep = depths
    for tokens in TOKENS:
        for depth in depths:
            yield case_name(depth, tokens), depth | {"max_tokens": tokens}
    for tokens in TOKENS:
        yield f"{case_name(deep, tokens)}-checkpointing", deep | {"max_tokens": tokens, "checkpointing": 1}
    yield "60-12-16k-checkpointing-3", deep | {"max_tokens": 16384, "checkpointing": 3}
    yield "18-18-16k-checkpointing", depths[1] | {"max_tokens": 16384, "checkpointing": 1}
    yield "6-6-16k-checkpointing", small | {"max_tokens": 16384, "checkpointing": 1}
    for precision in ("float32", "tf32"):
        for depth in (small, deep):
            yield f"{case_name(depth, 4096)}-{precision}", depth | {"precision": precision}
    for depth in depths:
        yield f"{case_name(depth, 4096)}-master-weights", depth | {"precision": "master_weights"}
    yield "60-12-16k-master-weights", deep | {"precision": "master_weights", "max_tokens": 16384}
    yield "60-12-4k-cudnn", deep | {"cudnn": True}
    yield "60-12-16k-cudnn", deep | {"cudnn": True, "max_tokens": 16384}
    yield "60-12-4k-eager", deep | {"attention": "eager"}
    yield "60-12-16k-flash_attention_2", deep | {"attention": "flash_attention_2", "max_tokens": 16384}
    for depth in (small, deep):
        yield f"{case_name(depth, 4096)}-4-workers", depth | {"workers": 4}
    micro = deep | {"max_tokens": 4096, "accumulation": TOKENS[-1] // 4096, "batches": 2 * TOKENS[-1] // 4096}
    yield "60-12-14x4k", micro
    yield "60-12-14x4k-auto", micro | {"auto_micro_batch": True}
    for tokens in TOKENS:
        yield f"{case_name(deep, tokens)}-compiled-layers", deep | {"compile_layers": True, "max_tokens": tokens}
    for depth in depths[:2]:
        yield f"{case_name(depth, 16384)}-compiled-layers", depth | {"compile_layers": True, "max_tokens": 16384}
    yield (
        "60-12-16k-compiled-layers-checkpointing",
        deep | {"compile_layers": True, "max_tokens": 16384, "checkpointing": 1},
    )
    yield "6-6-16k-compiled", small | {"compiled": True, "max_tokens": 16384}


def case_name(depth: dict[str, Any], tokens: int) -> str:
    """Such as 60-12-4k."""
    return f"{depth['encoder_layers']}-{depth['decoder_layers']}-{tokens // 1000}k"


def update_step(name: str, fields: dict[str, Any]) -> Step:
    """A measurement of updates; a compiler takes its time, a large batch too."""
    seconds = (
        (150, 300) if COMPILED & fields.keys() else (45, 150) if fields.get("max_tokens", 0) > 20000 else (25, 120)
    )
    return Step(f"updates-{name}", "update_speed:measure_updates", fields, *seconds)


def profiled(precision: str = "bf16") -> dict[str, Any]:
    """60-12 at 4k tokens, a few updates."""
    return {"encoder_layers": 60, "decoder_layers": 12, "batches": 5, "precision": precision}


def searches() -> Iterator[Step]:
    """Decoding speed of each system, 6-6 before 60-12."""
    systems = [("ours", dtype) for dtype in ("bfloat16", "float16", "float32")]
    systems += [("stock", "bfloat16"), ("stock", "float32"), ("CTranslate2", "float16"), ("CTranslate2", "float32")]
    for encoder, decoder in (DEPTHS[0], DEPTHS[-1]):
        for system, dtype in systems:
            fields = {"system": system, "dtype": dtype, "encoder_layers": encoder, "decoder_layers": decoder}
            yield Step(f"search-{encoder}-{decoder}-{system}-{dtype}", "search_speed:measure_search", fields, 30, 150)


def conformance(variant: str) -> Step:
    """transformers' common tests of a variant."""
    return Step(f"conformance-{variant}", "checks:run_conformance", {"variant": variant}, estimate=90, limit=240)


def trainings() -> Iterator[Step]:
    """The systems of the grid, the shallow ones first; a call that ends stops one at its last checkpoint."""
    systems = [f"{variant}-{encoder}-{decoder}" for encoder, decoder in DEPTHS for variant in SYSTEMS]
    for system in [*systems, LOWER_RATE]:
        name = f"train-{system}"
        yield Step(name, "grid_step:train_system", {"system": system}, estimate=60, limit=3600, resumes=True)
