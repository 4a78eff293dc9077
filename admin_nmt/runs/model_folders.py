"""New folders of models made from others: folded, exported, averaged, or new with a measured ω.

Each appears when it is complete.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from datasets import Dataset
from transformers import PreTrainedModel

from ..data.batching import Seq2SeqCollator
from ..data.tokenization.tokenizer_folder import load_tokenizers, save_tokenizers
from ..data.tokenizing import tokenize
from ..decoding.usual_scores import UsualScores
from ..hub.cards import write_export_card
from ..hub.model_folder import check_tokenizers, load_admin_model, load_model, read_config
from ..model.configuration_admin import AdminConfig
from ..model.modeling_admin import AdminForConditionalGeneration
from ..system.files import new_folder
from ..trainer.checkpoints import damaged_weights, last_whole_weights
from ..weights.averaging import average_checkpoints
from ..weights.exporting import export_standard
from ..weights.folding import fold_omega
from ..weights.omega import sublayer_names
from ..weights.profiling import Mode, profile_omega, profiling_batch


def fold_folder(model: Path, output: Path) -> None:
    """Fold ω of a model into the weights of another, of the same class.

    Raises:
        FoldingError: its variant cannot be folded.
    """
    folded = fold_omega(load_admin_model(model))
    with new_folder(output) as temporary:
        folded.save_pretrained(temporary)
        save_tokenizers(temporary, *load_tokenizers(model), positions=folded.config.max_position_embeddings)
        _copy_usual_scores(model, temporary)


def export_folder(model: Path, output: Path, name: str | None = None) -> PreTrainedModel:
    """Write the standard model of a model, with a card; see [`export_standard`].

    Args:
        name: of the model in its card; by default the folder's.
    """
    source, target = load_tokenizers(model)
    with new_folder(output) as temporary:
        standard = export_standard(load_admin_model(model), source, temporary, target)
        write_export_card(temporary, name or output.name)
        _copy_usual_scores(model, temporary)
    return standard


def _copy_usual_scores(model: Path, same: Path) -> None:
    """Copy the validation scores to a model that computes the same."""
    if scores := UsualScores.load(model):
        scores.save(same)


def average_folders(checkpoints: Sequence[Path], output: Path) -> None:
    """Write the model whose weights are the means of those of some checkpoints, with the last one's tokenizer.

    Raises:
        ValueError: one is damaged, or they are of different models.
    """
    for checkpoint in checkpoints:
        if fault := damaged_weights(checkpoint):
            raise ValueError(f"{checkpoint}: {fault}; leave out this checkpoint")
    with new_folder(output) as temporary:
        model = load_model(checkpoints[-1])
        model.load_state_dict(average_checkpoints(checkpoints), strict=False)
        model.save_pretrained(temporary)
        positions = getattr(model.config, "max_position_embeddings", None)
        save_tokenizers(temporary, *load_tokenizers(checkpoints[-1]), positions=positions)


def last_checkpoints(run: Path, count: int) -> list[Path]:
    """The last checkpoints of a run, earliest first.

    Raises:
        ValueError: so many are not complete.
    """
    found = last_whole_weights(run, count)
    if len(found) < count:
        raise ValueError(f"{run}: has {len(found)} complete checkpoints, not {count}; lower --last")
    return found


def profile_folder(
    model: Path, pairs: Dataset, mode: Mode = "unit", *, max_tokens: int, seed: int, output: Path | None = None
) -> dict[str, float]:
    """Measure ω of a new model of a folder's configuration on a [`profiling_batch`] of text; see [`profile_omega`].

    Args:
        model: holds config.json of variant `admin` and the tokenizers; weights are not read.
        pairs: columns `source` and `target`, text.
        max_tokens: most target tokens of the batch.
        seed: of the new weights and of the choice of pairs.
        output: where to save the new model, if anywhere.

    Returns:
        ω of each sublayer in the order in which they run, named such as `encoder 0 self_attn`.

    Raises:
        ValueError: the folder has no configuration of variant `admin`, or no tokenizers that belong to it.
    """
    config = read_config(model)
    if not isinstance(config, AdminConfig):
        raise ValueError(f"{model}: is a {config.model_type} model, which has no ω to profile")
    tokenizers = check_tokenizers(model, config)
    data = tokenize(pairs, *tokenizers, max_length=config.max_position_embeddings)
    batch = profiling_batch(data, Seq2SeqCollator(config.pad_token_id), max_tokens, seed, mode)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fresh = AdminForConditionalGeneration(config)
    omega = profile_omega(fresh, batch, mode)
    if output:
        with new_folder(output) as temporary:
            fresh.save_pretrained(temporary)
            save_tokenizers(temporary, *tokenizers, positions=config.max_position_embeddings)
    return dict(zip(sublayer_names(config), [*omega["encoder"], *omega["decoder"]], strict=True))
