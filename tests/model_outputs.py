"""What a model puts out, also where this package is not installed."""

from typing import Any

import torch

SEARCH: dict[str, Any] = {"num_beams": 5, "early_stopping": True, "max_new_tokens": 10}


@torch.no_grad()
def outputs(model, tokenizer, texts: list[str] | None = None, **inputs: torch.Tensor) -> dict[str, Any]:
    """The class, logits and beam-5 output of a model, and its translations of `texts`, if there are any."""
    found = {"class": type(model).__name__, "logits": model(**inputs).logits}
    del inputs["decoder_input_ids"]
    found["beams"] = model.generate(**inputs, **SEARCH).tolist()
    if texts:
        generated = model.generate(**tokenizer(texts, return_tensors="pt", padding=True), **SEARCH)
        found["translations"] = tokenizer.batch_decode(generated, skip_special_tokens=True)
    return found
