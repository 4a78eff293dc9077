"""Why post-LN fails when it is deep and ADMIN does not: dependency on the residual branches, and what it does.

New models of random weights read one batch of random ids. Shown by variant, and by depth of the encoder: the share of
each sublayer's output variance that comes from its own residual branch, and how far the encoder's output moves when the
weights are perturbed at random, or take Adam's first update (Liu, Liu et al. 2020, *Understanding the Difficulty of
Training Transformers*, section 4). No training, no data; minutes on one core. And gradients by sublayer on the
phrasebook, where post-LN's vanish with depth (Wang et al. 2019, section 2.2), if asked for after a short training too.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from statistics import correlation, geometric_mean, mean
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from ...model.configuration_admin import VARIANTS, AdminConfig
from ...model.modeling_admin import AdminForConditionalGeneration
from ...model.sublayers import of_both_stacks
from ...runs.pictures.curves import legend_above, line_style, save
from ...system.files import json_text
from ...system.markdown import table_text
from ...system.terminal import progress_bar
from ...weights.profiling import needs_profiling, profile_omega
from .depth_analysis import dependencies, output_change, perturbed, updated
from .gradients import phrasebook_text, study_gradients

VOCABULARY, SENTENCES, LENGTH = 1000, 16, 24  # of a batch: pairs, random tokens a side
SCALE = 1e-2  # of the random perturbation, in standard deviations of each matrix
LEARNING_RATE = 1e-5  # of Adam's first update
SUM = r"$\sum_i \beta_{ii}^2$"
PARTS = ("steps", "gradients")
Row = dict[str, Any]
MEASURES: dict[str, Callable[[Row], float]] = {
    SUM: lambda row: sum(row["own"]["encoder"]),
    "random step": lambda row: row["changes"]["perturbation"]["encoder"],
    "Adam's first step": lambda row: row["changes"]["update"]["encoder"],
}


@dataclass(kw_only=True)
class DepthStudy:
    """Models to analyse.

    Args:
        variants: which; `admin` profiles ω, as the paper does, `admin:RULE` takes it from that rule.
        depths: encoder layers.
        decoder_layers: at every depth of the encoder.
        shown_depth: encoder layers of the pictures of single sublayers.
        d_model: width; the feed-forward is twice that, with 4 heads.
        seeds: of weights, batch and perturbation.
        parts: `steps` for the dependency on the branches and what small changes do, `gradients` for those by sublayer
            of the smallest, the shown and the largest depth.
        updates: after which gradients are measured a second time; 0 for not at all.
    """

    variants: list[str] = field(default_factory=lambda: list(VARIANTS))
    depths: list[int] = field(default_factory=lambda: [2, 6, 12, 18, 36, 60])
    decoder_layers: int
    shown_depth: int
    d_model: int
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3])
    parts: list[str] = field(default_factory=lambda: list(PARTS))
    updates: int

    def __post_init__(self) -> None:
        self.depths = sorted(set(self.depths))

    @property
    def gradient_depths(self) -> list[int]:
        return sorted({self.depths[0], self.shown_depth, self.depths[-1]})

    @property
    def gradient_places(self) -> list[tuple[str, int, int]]:
        """Stack, encoder layers and own layers of each panel: every encoder, and the decoder above the shown one."""
        encoders = [("encoder", depth, depth) for depth in self.gradient_depths]
        return [*encoders, ("decoder", self.shown_depth, self.decoder_layers)]

    @property
    def stages(self) -> dict[int, str]:
        """Names of the moments at which gradients are measured, by the number of updates."""
        return {0: "at initialisation"} | ({self.updates: f"after {self.updates} updates"} if self.updates else {})


def random_batch() -> dict[str, Tensor]:
    """Pairs of random ids that end in </s>."""
    source, labels = torch.randint(2, VOCABULARY - 1, (2, SENTENCES, LENGTH))
    source[:, -1] = labels[:, -1] = 0
    return {"input_ids": source, "attention_mask": torch.ones_like(source), "labels": labels}


def new_config(args: DepthStudy, variant: str, encoder_layers: int) -> AdminConfig:
    """A configuration; raises ValueError where there is no such variant or rule, or the variant has no ω to rule."""
    name, _, rule = variant.partition(":")
    if rule and name != "admin":
        raise ValueError(f"--variant {variant}: only admin takes a rule for ω")
    shape = {"encoder_layers": encoder_layers, "decoder_layers": args.decoder_layers, "d_model": args.d_model}
    shape |= of_both_stacks(ffn_dim=2 * args.d_model, attention_heads=4)
    return AdminConfig(variant=name, vocab_size=VOCABULARY, omega_rule=rule or "profile", **shape)


def new_model(args: DepthStudy, variant: str, encoder_layers: int, batch: dict[str, Tensor]) -> Any:
    """A model as training begins with it: ω of ADMIN profiled, unless `variant` names another rule, as admin:n does."""
    model = AdminForConditionalGeneration(new_config(args, variant, encoder_layers)).eval()
    if needs_profiling(model):
        profile_omega(model, batch)
    return model


def analyse(args: DepthStudy, variant: str, encoder_layers: int, seed: int) -> Row:
    """The numbers of one model."""
    torch.manual_seed(seed)
    batch = random_batch()
    model = new_model(args, variant, encoder_layers, batch)
    beta = {name: matrix.square() for name, matrix in dependencies(model, batch).items()}
    found: Row = {"variant": variant, "encoder_layers": encoder_layers, "seed": seed}
    found["own"] = {name: matrix.diagonal(1).tolist() for name, matrix in beta.items()}
    found["changes"] = {
        "perturbation": output_change(model, perturbed(model, SCALE, seed), batch),
        "update": output_change(model, updated(model, batch, LEARNING_RATE), batch),
    }
    if encoder_layers == args.shown_depth and seed == args.seeds[0]:
        found["beta_squared"] = beta["encoder"].tolist()
    return found


def is_chain(variant: str) -> bool:
    """True where a sublayer reads the one before alone: Σ β²ᵢᵢ then says how much a small step moves the output."""
    return not variant.startswith(("dlcl_", "transparent_", "b2t"))


def averages(args: DepthStudy, rows: list[Row], variant: str, measure: Callable[[Row], float]) -> list[float]:
    """Over the seeds, at each depth."""
    chosen = [row for row in rows if row["variant"] == variant]
    return [mean(measure(row) for row in chosen if row["encoder_layers"] == depth) for depth in args.depths]


def plot_growth(args: DepthStudy, rows: list[Row], path: Path) -> None:
    """Own branch by sublayer, and the three measures by depth."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 7.5), layout="constrained")
    first, *others = axes.flat
    for index, variant in enumerate(args.variants):
        style = line_style(index) | {"label": variant}
        own = [r["own"]["encoder"] for r in rows if (r["variant"], r["encoder_layers"]) == (variant, args.shown_depth)]
        if is_chain(variant):
            values = [mean(seeds) for seeds in zip(*own, strict=True)]
            first.plot(range(1, len(values) + 1), values, **style)
        for axis, (name, measure) in zip(others, MEASURES.items(), strict=True):
            if is_chain(variant) or name != SUM:
                axis.plot(args.depths, averages(args, rows, variant, measure), marker="o", markersize=4, **style)
    first.set(xlabel=f"sublayer of {args.shown_depth} encoder layers", ylim=(0, None))
    first.set_title(r"share of the own branch, $\beta_{ii}^2$", fontsize=10, pad=9)  # upright
    steps = (f"{SCALE:g} std", f"{LEARNING_RATE:g}")
    labels = [rf"{SUM} over the encoder"]
    labels += [f"output change, {name} ({size})" for name, size in zip(list(MEASURES)[1:], steps, strict=True)]
    for axis, label in zip(others, labels, strict=True):
        axis.set(xlabel="encoder layers", xscale="log", yscale="log")
        axis.set_title(label, fontsize=10, pad=9)
        axis.set_xticks(args.depths, [str(depth) for depth in args.depths])
        axis.minorticks_off()
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    legend_above(figure, others[-1], "")
    save(figure, path)


def plot_matrices(args: DepthStudy, rows: list[Row], path: Path) -> None:
    """β of every pair of sublayers, as heat maps."""
    matrices = {row["variant"]: row["beta_squared"] for row in rows if "beta_squared" in row}
    columns = min(3, len(matrices))
    lines = math.ceil(len(matrices) / columns)
    size = (3.4 * columns, 3.2 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for axis in axes.flat[len(matrices) :]:
        axis.remove()
    panels = axes.flat[: len(matrices)]
    for axis, (variant, matrix) in zip(panels, matrices.items(), strict=True):
        beta = torch.tensor(matrix).sqrt()
        shown = beta.masked_fill(torch.ones_like(beta).triu(2).bool(), math.nan)
        ends = (-0.5, len(beta) + 0.5, len(beta) + 0.5, 0.5)
        image = axis.imshow(shown.numpy(), vmin=0, vmax=1, aspect="auto", interpolation="none", extent=ends)
        axis.set(title=variant, xlabel="branch j (0: embedding)", ylabel="output of sublayer i")
    figure.colorbar(image, ax=panels, shrink=0.8).set_label(r"$\beta_{ij}$", rotation=0, labelpad=10)
    save(figure, path)


def table(args: DepthStudy, rows: list[Row]) -> str:
    """Each measure at the smallest and the largest depth, and how well a + b·N and a + b·ln N describe all depths."""
    ends = f"{args.depths[0]} → {args.depths[-1]} layers"
    head = ["variant", *(text for name in MEASURES for text in (f"{name}, {ends}", "R² of N, of log N"))]
    lines = []
    for variant in args.variants:
        cells = [variant]
        for name, measure in MEASURES.items():
            values = averages(args, rows, variant, measure)
            if not any(values):  # ReZero before its first update, where no branch reaches the output
                cells += ["0", "–"]
                continue
            fits = [correlation(xs, values) ** 2 for xs in (args.depths, [math.log(depth) for depth in args.depths])]
            shown = is_chain(variant) or name != SUM
            ratio = values[-1] / values[0]
            growth = f"{values[0]:.2g} → {values[-1]:.2g} (×{ratio:{',.0f' if ratio > 99 else '.2g'}})"
            cells += [growth, f"{fits[0]:.3f}, {fits[1]:.3f}"] if shown else ["–", "–"]
        lines.append(cells)
    return table_text(head, lines)


def rounded(value: Any) -> Any:
    """A value with five significant digits, for a file of readable size."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def gradient_rows(args: DepthStudy) -> list[Row]:
    """Gradients of every variant, depth and seed, each at initialisation and after the updates."""
    rows = []
    with TemporaryDirectory() as folder:
        data, batch = phrasebook_text(SENTENCES, VOCABULARY, Path(folder))
        cases = list(product(args.variants, args.gradient_depths, args.seeds))
        for variant, depth, seed in progress_bar(cases, desc="gradients", unit="case"):
            build = partial(new_model, args, variant, depth)
            measured = study_gradients(build, data, batch, updates=args.updates, seed=seed, folder=Path(folder))
            case = {"variant": variant, "encoder_layers": depth, "decoder_layers": args.decoder_layers, "seed": seed}
            rows += [case | row for row in measured]
    return rows


def of_seeds(rows: list[Row], variant: str, depth: int, updates: int) -> list[Row]:
    """The measurements of one line, without those of a training that diverged."""
    case = (variant, depth, updates)
    return [r for r in rows if (r["variant"], r["encoder_layers"], r["updates"]) == case and "fault" not in r]


def plot_gradients(args: DepthStudy, rows: list[Row], kind: str, path: Path) -> None:
    """Mean norm over the seeds by sublayer, a line a variant; a row a stage, a column an encoder or the decoder."""
    symbol, start = (r"$\|\partial E/\partial x_l\|$", 0) if kind == "states" else (r"$\|\partial E/\partial W\|$", 1)
    places, stages = args.gradient_places, args.stages
    size = (3.3 * len(places) + 0.6, 3.0 * len(stages) + 0.6)
    figure, panels = plt.subplots(
        len(stages), len(places), figsize=size, layout="constrained", squeeze=False, sharey=True
    )
    for line, (updates, stage) in zip(panels, stages.items(), strict=True):
        for axis, (stack, depth, layers) in zip(line, places, strict=True):
            for index, variant in enumerate(args.variants):
                seeds = zip(*(row[stack][kind] for row in of_seeds(rows, variant, depth, updates)), strict=True)
                # 0, which a scale of logarithms has not, is a gap.
                values = [mean(norms) or math.nan for norms in seeds]
                axis.plot(range(start, start + len(values)), values, label=variant, **line_style(index))
            title = f"{stack} of {layers} layers" + f" (encoder of {depth})" * (stack == "decoder")
            axis.set_title(title, fontsize=10)
            axis.set(xlabel="sublayer l" if start else "sublayer l (0: embedding)", yscale="log")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.grid(alpha=0.3)
        line[0].set_ylabel(f"{symbol} {stage}")
    legend_above(figure, panels[0, 0], "")
    save(figure, path)


def gradient_table(args: DepthStudy, rows: list[Row]) -> str:
    """‖∂E/∂x_0‖ / ‖∂E/∂x_n‖ of both stacks by depth, and in brackets what the skip connections alone would leave."""
    head = ["variant", "when", *(f"{stack}, {layers} layers" for stack, _, layers in args.gradient_places)]
    lines = []
    for variant, (updates, stage) in product(args.variants, args.stages.items()):
        cells = [variant, stage]
        for stack, depth, _ in args.gradient_places:
            seeds = of_seeds(rows, variant, depth, updates)
            text = ratio_text([row[stack]["states"] for row in seeds], [row["skip_path"][stack] for row in seeds])
            cells.append(text if is_chain(variant) or not seeds else text.partition(" ")[0])
        lines.append(cells)
    sublayers = [{"encoder": 2, "decoder": 3}[stack] * layers for stack, _, layers in args.gradient_places]
    lines.append(["$(1/\\sqrt 2)^n$", "theory", *(f"{2 ** (-n / 2):.2g}" for n in sublayers)])
    return table_text(head, lines)


def ratio_text(states: list[list[float]], skip_path: list[float]) -> str:
    """Bottom by top, and the skip path in brackets; geometric means over the seeds."""
    if not states:
        return "diverged"
    if not all(norms[0] and norms[-1] for norms in states):  # ReZero's encoder before the first update
        return "–"
    return f"{geometric_mean(norms[0] / norms[-1] for norms in states):.2g} ({geometric_mean(skip_path):.2g})"


def write_numbers(args: DepthStudy, rows: list[Row], path: Path) -> None:
    """Leave the settings and all numbers."""
    sizes = {"sentences": SENTENCES, "scale": SCALE, "learning_rate": LEARNING_RATE}
    facts = {"settings": {"output": str(path.parent)} | asdict(args) | sizes, "torch": torch.__version__, "rows": rows}
    path.write_text(json_text(rounded(facts)) + "\n", encoding="utf-8")


def write_gradients(args: DepthStudy, folder: Path) -> str:
    """Measure, and leave gradients.json and two pictures; returns the table."""
    rows = gradient_rows(args)
    write_numbers(args, rows, folder / "gradients.json")
    for kind in ("states", "matrices"):
        plot_gradients(args, rows, kind, folder / f"gradients-{kind}.png")
    return gradient_table(args, rows)


def write_steps(args: DepthStudy, folder: Path) -> str:
    """Analyse, and leave results.json and the pictures of dependency and growth; returns the table."""
    depths = sorted({*args.depths, args.shown_depth})
    cases = list(product(args.variants, depths, args.seeds))
    rows = [analyse(args, *case) for case in progress_bar(cases, desc="models", unit="model")]
    write_numbers(args, rows, folder / "results.json")
    plot_growth(args, rows, folder / "growth.png")
    plot_matrices(args, rows, folder / "dependencies.png")
    return table(args, rows)


def write_depth_report(args: DepthStudy, folder: Path) -> str:
    """Analyse, and leave results.json, gradients.json, table.md and the plots in a folder; returns the tables.

    Raises:
        ValueError: a variant or depth cannot be analysed, found before anything is computed.
    """
    if len(set(args.depths)) < 2 and "steps" in args.parts:
        raise ValueError("--depth: give at least two different ones; the growth from one to the other is measured")
    for variant in args.variants:
        new_config(args, variant, args.shown_depth)
    folder.mkdir(parents=True, exist_ok=True)
    writers = {"steps": write_steps, "gradients": write_gradients}
    text = "\n\n".join(write(args, folder) for part, write in writers.items() if part in args.parts)
    (folder / "table.md").write_text(text + "\n", encoding="utf-8")
    return text
