"""Decoding speed on the GPU: our beam search, stock `generate` and CTranslate2, on models of random weights."""

import gc
import time
from pathlib import Path
from typing import Any

import torch

from admin_nmt import AdminConfig, AdminForConditionalGeneration

from ...system.files import new_folder
from ...weights.exporting import export_standard
from ..translation_speed import Case, build
from .gpu_setup import SEED, Setup

SENTENCES, STEPS = 512, 30  # each takes so many decoder steps, whatever its random model says
TOY_SENTENCES, TOY_STEPS = 4, 3


def model_folder(setup: Setup, encoder_layers: int, decoder_layers: int) -> Path:
    """A stock Marian folder of a depth with random weights, which the first call makes."""
    folder = setup.output / "models" / f"{encoder_layers}-{decoder_layers}"
    if not folder.is_dir():
        recipe, tokenizer = setup.recipe(), setup.prepared().source_tokenizer
        settings = recipe.model.configuration() | {"variant": "post_ln", "vocab_size": len(tokenizer)}
        settings |= {"encoder_layers": setup.depth(encoder_layers), "decoder_layers": setup.depth(decoder_layers)}
        torch.manual_seed(SEED)
        model = AdminForConditionalGeneration(AdminConfig(**settings))
        with new_folder(folder) as temporary:
            export_standard(model, tokenizer, temporary)
    return folder


def measure_search(
    setup: Setup,
    system: str,
    dtype: str,
    encoder_layers: int,
    decoder_layers: int,
    beams: tuple[int, ...] = (1, 5),
    batches: tuple[int, ...] = (32, 256),
) -> dict[str, Any]:
    """Sentences and target tokens a second by beam and batch size.

    Args:
        system: "ours", "stock" or "CTranslate2".
        dtype: of torch's weights, or `compute_type` of CTranslate2.
        batches: sentences of stock's batches; ours and CTranslate2 take as many source positions as those hold on
            average, sorted by length.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    count, steps = (TOY_SENTENCES, TOY_STEPS) if setup.toy else (SENTENCES, STEPS)
    test = setup.prepared().data["test"]
    sentences = (test["source"][:] * count)[:count]
    mean = sum(test["source_length"]) / len(test)
    folder = str(model_folder(setup, encoder_layers, decoder_layers))
    name = f"CTranslate2 {dtype}" if system == "CTranslate2" else system
    torch_dtype = "float32" if system == "CTranslate2" else dtype
    rows = []
    for beam in beams:
        for batch in batches:
            case = Case(
                folder, str(setup.output / "cache"), sentences, beam, steps, round(batch * mean),
                torch.get_num_threads(), device, torch_dtype, batch,
            )  # fmt: skip
            rows.append({"num_beams": beam, "batch": batch} | seconds(name, case))
    facts = {"system": system, "dtype": dtype, "encoder_layers": encoder_layers, "decoder_layers": decoder_layers}
    return facts | {"sentences": count, "steps": steps, "device": device, "rows": rows}


def seconds(system: str, case: Case) -> dict[str, Any]:
    """Of translating all sentences once they have been translated before, so that every shape has been met."""
    translate = build(system, case)
    translate(case.sentences)
    if case.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    translate(case.sentences)
    taken = time.perf_counter() - start
    facts = {"seconds": taken, "sentences_per_second": len(case.sentences) / taken}
    if case.device == "cuda" and not system.startswith("CTranslate2"):  # which has an allocator of its own
        facts["allocated"] = torch.cuda.max_memory_allocated()
    del translate
    gc.collect()
    return facts
