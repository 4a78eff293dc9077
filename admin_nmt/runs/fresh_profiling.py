"""ω that a new model would start with, measured on text before any training."""

import copy
from pathlib import Path

import torch
from datasets import Dataset

from ..data.batching import Seq2SeqCollator
from ..data.tokenizing import profiling_pairs, tokenize
from ..hub.model_folder import check_tokenizers, read_config
from ..model.configuration_admin import AdminConfig
from ..model.modeling_admin import AdminForConditionalGeneration
from ..model.sublayers import sublayer_names
from ..weights.profiling import MODES, Mode, profile_omega


def profile_fresh_model(
    folder: Path, pairs: Dataset, mode: Mode = "unit", *, max_tokens: int = 8000, seed: int = 42
) -> tuple[AdminForConditionalGeneration, dict[str, float]]:
    """A new model of a folder's configuration, with ω measured on a batch of text; see [`profile_omega`].

    The batch is of random pairs, in reference mode of random ones of similar length, as the authors' batches are.

    Args:
        folder: holds config.json of variant `admin` and the tokenizers; weights are not read.
        pairs: columns `source` and `target`, text.
        max_tokens: most target tokens of the batch.
        seed: of the new weights and of the choice of pairs.

    Returns:
        The model, and ω of each sublayer in the order in which they run, named such as `encoder 0 self_attn`.

    Raises:
        ValueError: the folder has no configuration of variant `admin`, or no tokenizers that belong to it.
    """
    config = copy.deepcopy(read_config(folder))
    if not isinstance(config, AdminConfig):
        raise ValueError(f"{folder}: is a {config.model_type} model, which has no ω to profile")
    tokenizers = check_tokenizers(folder, config)
    config.omega_rule = next(rule for rule, measured in MODES.items() if measured == mode)
    config.omega_profiled = False
    data = tokenize(pairs, *tokenizers, max_length=config.max_position_embeddings)
    chosen = data[profiling_pairs(data, max_tokens, seed, mode)]
    rows = [
        {"input_ids": source, "labels": target}
        for source, target in zip(chosen["input_ids"], chosen["labels"], strict=True)
    ]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AdminForConditionalGeneration(config)
    omega = profile_omega(model, Seq2SeqCollator(config.pad_token_id)(rows), mode)
    return model, dict(zip(sublayer_names(config), [*omega["encoder"], *omega["decoder"]], strict=True))
