"""Linear probes of what each layer's states hold: they read tokens from the frozen states of a model.

At every layer, from the input of the first to the output of the stack, a linear classifier guesses the token at a
position, the one before and the one after: source tokens in the encoder, the tokens that it reads in the decoder, whose
"token after" is the one to be predicted. The classifier is Fisher's, a Gaussian for each token with one covariance for
all: closed form, nothing to tune, and fit for many classes. It is fitted on one part of the sentences and scored on the
others. Two baselines: always the most frequent token, and the same probe on a new model with random weights.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import Any, cast

import torch
from datasets import Dataset
from torch import Tensor

from admin_nmt import AdminForConditionalGeneration

from ...data.batching import Seq2SeqCollator
from ...hub.model_folder import check_tokenizers, load_admin_model, short_names
from ...runs.pictures.curves import COLOURS, MARKERS, literal
from ...system.files import json_text
from ...system.markdown import table_text
from ...system.terminal import progress_bar
from ...weights.profiling import MODES, profile_omega
from .depth_analysis import output_states, stacks_of, token_masks
from .depth_plots import Panel, plot_panels

STACKS = ("encoder", "decoder")
TARGETS = {"token before": -1, "this token": 0, "token after": 1}  # by their distance from the position
CLASSES = 500  # the most frequent tokens, about which probes are asked; other positions are left out
SHRINKAGE = 1e-3  # share of the average variance that is added to every feature's
HELD_OUT = 5  # every fifth sentence is scored, the others are fitted
BATCH = 64
Probe = Callable[[Tensor], Tensor]


def fit_probe(states: Tensor, tokens: Tensor, classes: int) -> Probe:
    """Fisher's linear discriminant.

    Args:
        states: [N, d]. tokens: [N], ids below `classes`.

    Returns:
        Function from states [M, d] to the ids [M] of highest posterior, linear in the states: the highest of
        log π_c + μ_cᵀ Σ⁻¹ x − ½ μ_cᵀ Σ⁻¹ μ_c with class means μ_c, shares π_c and the covariance Σ within classes.
    """
    states = states.double()
    counts = torch.bincount(tokens, minlength=classes).double()
    centre = states.mean(0)
    sums = torch.zeros(classes, states.shape[1], dtype=torch.float64).index_add_(0, tokens, states - centre)
    means = sums / counts.clamp(min=1)[:, None]
    within = states - centre - means[tokens]
    covariance = within.T @ within / len(states)
    total = (states - centre).square().mean()
    covariance.diagonal().add_(SHRINKAGE * total + torch.finfo(torch.float32).tiny)
    weight = torch.linalg.solve(covariance, means.T)
    bias = counts.div(len(states)).log() - (means * weight.T).sum(1) / 2  # −∞ for a class without an example
    return lambda x: ((x.double() - centre) @ weight + bias).argmax(1)


@torch.no_grad()
def layer_states(model: AdminForConditionalGeneration, batch: Mapping[str, Tensor]) -> dict[str, list[Tensor]]:
    """The input of every layer and the output of its stack, [tokens, d] each, in evaluation mode, without padding."""
    masks = token_masks(batch)
    states: dict[str, list[Tensor]] = {name: [] for name in STACKS}
    with ExitStack() as hooks:
        for name, stack in stacks_of(model).items():
            for layer in stack.layers:

                def keep(module: Any, args: tuple, name: str = name) -> None:
                    states[name].append(args[0][masks[name]])

                hooks.callback(layer.register_forward_pre_hook(keep).remove)
        outputs = output_states(model, batch)
    return {name: [*found, outputs[name]] for name, found in states.items()}


def neighbours(ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """For each token of `ids` [B, L] under `mask`, the tokens that probes are asked about, [tokens]; −1 for none."""
    found = {}
    ids = ids.masked_fill(~mask, -1)
    for target, distance in TARGETS.items():
        moved = ids.roll(-distance, 1)
        if distance:
            moved[:, -1 if distance > 0 else 0] = -1
        found[target] = moved[mask]
    return found


def tokens_of(model: AdminForConditionalGeneration, batch: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Results of [`neighbours`] in the source, and in what the decoder reads; its token after is the label."""
    masks, read = token_masks(batch), model.prepare_decoder_input_ids_from_labels(batch["labels"])
    decoder = neighbours(read, masks["decoder"]) | {"token after": batch["labels"][masks["decoder"]]}
    return {"encoder": neighbours(batch["input_ids"], masks["encoder"]), "decoder": decoder}


def accuracies(model: AdminForConditionalGeneration, batches: Sequence[Mapping[str, Tensor]]) -> dict[str, Any]:
    """Held-out accuracy of every probe, by stack and target: {"layers": [L + 1 numbers], "majority": number}."""
    seen = [layer_states(model, batch) for batch in batches]
    tokens = [tokens_of(model, batch) for batch in batches]
    found: dict[str, Any] = {}
    for name in STACKS:
        masks = [token_masks(batch)[name] for batch in batches]
        sentences = torch.cat([_sentence_of(mask, BATCH * index) for index, mask in enumerate(masks)])
        held_out = sentences % HELD_OUT == HELD_OUT - 1
        layers = [torch.cat(parts) for parts in zip(*(states[name] for states in seen), strict=True)]
        for target in TARGETS:
            ids = torch.cat([batch[name][target] for batch in tokens])
            found.setdefault(name, {})[target] = _scores(layers, ids, held_out)
    return found


def _sentence_of(mask: Tensor, first: int) -> Tensor:
    """The number of the sentence of each token, [tokens]."""
    return (torch.arange(len(mask))[:, None] + first).expand_as(mask)[mask]


def _scores(layers: Sequence[Tensor], tokens: Tensor, held_out: Tensor) -> dict[str, Any]:
    """Probes of all layers on one target."""
    frequent = torch.bincount(tokens[~held_out & (tokens >= 0)]).topk(min(CLASSES, int(tokens.max()) + 1)).indices
    class_of = torch.full((int(tokens.max()) + 2,), -1).index_put_((frequent,), torch.arange(len(frequent)))
    classes = class_of[tokens]  # −1, no token, is the last entry
    fitted, scored = (~held_out & (classes >= 0)), (held_out & (classes >= 0))
    right = classes[scored]
    values = [
        (fit_probe(states[fitted], classes[fitted], len(frequent))(states[scored]) == right).double().mean().item()
        for states in layers
    ]
    return {"layers": values, "majority": (right == 0).double().mean().item(), "tokens": len(right)}


def new_weights(
    model: AdminForConditionalGeneration, batch: dict[str, Tensor], seed: int
) -> AdminForConditionalGeneration:
    """A new model of the same configuration, with its own ω if that is profiled."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        fresh = AdminForConditionalGeneration(copy.deepcopy(model.config)).eval()
    if fresh.config.variant == "admin" and fresh.config.omega_rule in MODES:
        profile_omega(fresh, batch, MODES[fresh.config.omega_rule])
    return fresh


def text_batches(
    folder: Path, pairs: Dataset, model: AdminForConditionalGeneration, sentences: int
) -> list[dict[str, Tensor]]:
    """Batches of the first sentences that the model's positions hold."""
    source, target = check_tokenizers(folder, model.config)
    longest = model.config.max_position_embeddings
    rows = []
    for pair in pairs:
        row = {"input_ids": source(pair["source"])["input_ids"], "labels": target(pair["target"])["input_ids"]}
        if max(len(row["input_ids"]), len(row["labels"])) <= longest:
            rows.append(row)
        if len(rows) == sentences:
            break
    collate = Seq2SeqCollator(cast(int, model.config.pad_token_id))
    return [collate(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]


def probe_models(folders: Sequence[Path], pairs: Dataset, sentences: int, seed: int = 1) -> dict[str, Any]:
    """Accuracies by model, of its trained weights and of new ones.

    Raises:
        ValueError: a folder holds no model of this package, or there are too few sentences to score.
    """
    found = {}
    named = list(zip(short_names(folders), folders, strict=True))
    for name, folder in progress_bar(named, desc="models", unit="model"):
        model = load_admin_model(folder)
        batches = text_batches(folder, pairs, model, sentences)
        if (count := sum(len(batch["input_ids"]) for batch in batches)) < HELD_OUT:
            positions = model.config.max_position_embeddings
            raise ValueError(f"{folder}: {count} sentences fit its {positions} positions; probes need {HELD_OUT}")
        fresh = new_weights(model, batches[0], seed)
        shape = f"{model.config.variant} {model.config.encoder_layers}-{model.config.decoder_layers}"
        found[name] = {"model": shape, "trained": accuracies(model, batches), "new": accuracies(fresh, batches)}
    return found


def plot_probes(found: Mapping[str, Any], path: Path) -> None:
    """A row a model: encoder and decoder; dashed the new model, dotted the most frequent token, mean of the targets."""
    rows = [
        [
            Panel(f"{literal(name)}, {facts['model']}: {stack}", "layer (0: embedding)", dict(_lines(facts, stack)))
            for stack in STACKS
        ]
        for name, facts in found.items()
    ]
    for row in rows:
        row[0].ylabel = "held-out accuracy"
    plot_panels(rows, path, width=4.6)


def _lines(facts: Mapping[str, Any], stack: str) -> Iterator[tuple[str, tuple[list[float], dict[str, Any]]]]:
    for index, target in enumerate(TARGETS):
        style = {"color": COLOURS[index], "marker": MARKERS[index], "markersize": 4}
        trained, new = facts["trained"][stack][target], facts["new"][stack][target]
        yield target, (trained["layers"], style)
        yield f"{target}, new model", (new["layers"], style | {"linestyle": "--", "markersize": 2.5, "linewidth": 1.0})
    level = [mean(facts["trained"][stack][target]["majority"] for target in TARGETS)] * len(trained["layers"])
    yield "most frequent token", (level, {"color": "grey", "linestyle": ":"})


def probe_table(found: Mapping[str, Any]) -> str:
    """Accuracy at the embedding, the middle and the top, trained and (new), beside that of the most frequent token."""
    head = ["model", "stack", "probe", "embedding", "middle", "output", "most frequent token"]
    lines = []
    for name, facts in found.items():
        for stack in STACKS:
            for target in TARGETS:
                trained, new = (facts[kind][stack][target] for kind in ("trained", "new"))
                places = (0, len(trained["layers"]) // 2, -1)
                cells = [f"{trained['layers'][place]:.1%} ({new['layers'][place]:.1%})" for place in places]
                lines.append([name, stack, target, *cells, f"{trained['majority']:.1%}"])
    return table_text(head, lines)


def write_probe_report(folders: Sequence[Path], pairs: Dataset, sentences: int, output: Path) -> str:
    """Probe models, and leave probes.json, probes.png and table.md in a folder; returns the table."""
    found = probe_models(folders, pairs, sentences)
    output.mkdir(parents=True, exist_ok=True)
    settings = {"sentences": sentences, "held_out": f"every {HELD_OUT}th", "classes": CLASSES, "shrinkage": SHRINKAGE}
    facts = {"settings": settings, "torch": torch.__version__, "models": found}
    (output / "probes.json").write_text(json_text(facts) + "\n", encoding="utf-8")
    plot_probes(found, output / "probes.png")
    text = probe_table(found)
    (output / "table.md").write_text(text + "\n", encoding="utf-8")
    return text
