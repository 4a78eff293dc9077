"""Model cards, made of nothing but the facts that a run left in its results.json.

The template card.md.jinja asks for facts by name; one that is missing is refused, so a card has no gaps.
"""

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.utils import validate_repo_id

from ..metrics.languages import language_name
from ..model.configuration_admin import AdminConfig
from ..system.files import whole_files
from ..system.messages import escaped
from .pictures.weights import plot_mean_omega
from .recipe import TokenizerSection
from .results import FILE, load_results

TEMPLATE = Path(__file__).with_name("card.md.jinja")
CARD, CURVE, OMEGA = "README.md", "curve.png", "omega.png"
STANDARD, UNFOLDED = "standard", "final"
METRICS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
HINTS = {
    "test": "name a test set in data.test of the recipe and train anew",
    "chosen": "let the run finish",
    "export": "let the run finish",
}


class RequiredFacts(dict[str, Any]):
    """A part of results.json whose subscript, unlike a dictionary's, demands a fact; `get` asks for one as usual.

    The template reads facts by subscript, so a card with a gap cannot be made.

    Raises:
        ValueError: with the full name of a fact that is absent, null or no finite number.
    """

    def __init__(self, values: Mapping[str, Any], file: Path, prefix: str = "") -> None:
        super().__init__(
            {
                name: RequiredFacts(value, file, f"{prefix}{name}.") if isinstance(value, dict) else value
                for name, value in values.items()
            }
        )
        self._file, self._prefix = file, prefix

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            full = f"{self._prefix}{name}"
            what = "missing" if value is None else f"{value}, no number"
            hint = HINTS.get(full, "train the model anew with this version of admin_nmt")
            raise ValueError(f"{self._file}: {full} is {what}, and a model card needs it: {hint}")
        return value


def read_facts(run: Path, results: Mapping[str, Any] | None = None) -> RequiredFacts:
    """The facts of a finished run.

    Args:
        results: what will be in results.json; default: what is there.

    Raises:
        ValueError: results.json is absent or damaged, or the run diverged.
    """
    facts = RequiredFacts(load_results(run) if results is None else results, run / FILE)
    if diverged := facts.get("diverged"):
        reason = str(diverged["reason"]).rstrip(".")
        raise ValueError(f"{run}: has no model to describe, it diverged at update {diverged['update']} ({reason})")
    return facts


def render_card(run: Path, folder: Path, repo_id: str | None = None, results: Mapping[str, Any] | None = None) -> str:
    """The card, README.md, of one model of a run; the same facts give the same text.

    Args:
        run: the folder of results.json.
        folder: `standard`, the stock model, or `final`, the model as trained; only the name is looked at.
        repo_id: where the stock model is published; default: what the recipe says, else USER and the run's name.
        results: as for [`read_facts`].

    Raises:
        ValueError: a fact is missing, the run has no such model, or no repository can have that name.
    """
    facts, unfolded = read_facts(Path(run), results), Path(folder).name == UNFOLDED
    if Path(folder).name not in (STANDARD, UNFOLDED):
        raise ValueError(f"{folder}: a card describes {STANDARD}/ or {UNFOLDED}/ of a run; give one of them")
    refused = facts["export"].get("refused")
    if refused and not unfolded:
        raise ValueError(f"{folder}: the run has no stock model ({refused}); make the card of {Path(run) / UNFOLDED}")
    author = facts["recipe"].get("card") or {}
    stock_id = repo_id or author.get("repo_id") or f"USER/{_repo_name(facts['recipe']['output_dir'])}"
    validate_repo_id(stock_id)  # the card shows it in commands to copy
    repo_id = f"{stock_id}-admin" if unfolded and not refused else stock_id
    source, target = (escaped(language_name(code)) for code in facts["recipe"]["languages"])
    corpus = _corpus(facts["recipe"], author)
    config = AdminConfig.from_dict(dict(facts["model"]["config"]))
    card = ModelCard.from_template(
        _metadata(facts, author, repo_id, unfolded),
        template_str=TEMPLATE.read_text(encoding="utf-8"),
        facts=facts,
        author=author,
        config=config,
        repo_id=repo_id,
        stock_id=stock_id,
        unfolded=unfolded,
        refused=escaped(refused) if refused else None,
        joint=config.share_encoder_decoder_embeddings or _is_joint(facts["recipe"]),
        prepared=_is_prepared(facts["recipe"]),
        source=source,
        target=target,
        corpus=escaped(corpus) if corpus else None,
        test_set=escaped(_test_set(facts["recipe"], author)),
        example=json.dumps(author.get("example") or f"A sentence in {source}.", ensure_ascii=False),
        filters=filter_rows(facts["data"]["filters"]),
        progress=progress(facts["history"]),
        metrics=METRICS,
    )
    return str(card).rstrip() + "\n"


def write_card(run: Path, folder: Path, repo_id: str | None = None, results: Mapping[str, Any] | None = None) -> Path:
    """Write README.md and its pictures into the folder of a model; all are complete, or nothing changes.

    Args:
        repo_id: as for [`render_card`].
        results: as for [`read_facts`].

    Returns:
        The path of README.md.

    Raises:
        ValueError: a fact, the run's curve.png or matplotlib is missing.
    """
    run, folder = Path(run), Path(folder)
    text, omega = render_card(run, folder, repo_id, results), read_facts(run, results).get("omega")
    if not folder.is_dir():
        raise ValueError(f"{folder}: is no folder; give that of a model of the run")
    if not (run / CURVE).is_file():
        raise ValueError(f"{run / CURVE}: is missing, and the card shows it: training leaves it in the run's folder")
    with whole_files(folder) as draft:
        shutil.copyfile(run / CURVE, draft / CURVE)
        if omega:
            plot_mean_omega(omega, draft / OMEGA)
        (draft / CARD).write_text(text, encoding="utf-8")
    return folder / CARD


def check_card(run: Path, folder: Path, repo_id: str | None = None) -> None:
    """Whether the card in the folder of a model is the one that its run's facts give.

    Args:
        repo_id: as for [`render_card`].

    Raises:
        ValueError: the card or a picture is absent, a fact is missing, or the card differs from a fresh rendering.
    """
    run, folder = Path(run), Path(folder)
    fresh, where = render_card(run, folder, repo_id), f" --repo {repo_id}" if repo_id else ""
    again = f"render it with `admin-nmt card {shlex.quote(str(run))}{where}`"
    for name in (CARD, *pictures(fresh)):
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: is missing from the model card: {again}")
    if (folder / CARD).read_text(encoding="utf-8") != fresh:
        raise ValueError(f"{folder / CARD}: differs from what {run / FILE} gives: {again}")


def pictures(text: str) -> list[str]:
    """The files that a card shows."""
    return re.findall(r"!\[[^\]]*\]\((\S+?)\)", text)


def _metadata(facts: RequiredFacts, author: Mapping[str, str], repo_id: str, unfolded: bool) -> ModelCardData:
    """The YAML header; each score carries its sacreBLEU signature in the metric's `args`."""
    model, test, languages = facts["model"], facts["test"], facts["recipe"]["languages"]
    dataset = _test_set(facts["recipe"], author)
    deep = max(model["encoder_layers"], model["decoder_layers"]) > 6
    results = [
        EvalResult(
            task_type="translation",
            task_name=f"Translation {languages[0]}-{languages[1]}",
            dataset_name=dataset,
            dataset_type=author.get("dataset_type") or re.sub(r"[^a-z0-9]+", "-", dataset.lower()).strip("-"),
            dataset_split="test",
            metric_type=metric,
            metric_name=name,
            metric_value=round(test[metric], 2),
            metric_args={"signature": test[f"{metric}_signature"]},
        )
        for metric, name in METRICS.items()
    ]
    return ModelCardData(
        language=list(dict.fromkeys(languages)),
        license=author.get("license") or "unknown",
        library_name="transformers",
        pipeline_tag="translation",
        datasets=[author["dataset_type"]] if author.get("dataset_type") else None,
        metrics=list(METRICS),
        tags=[
            "admin_nmt",
            model["variant"],
            *["deep-transformer"] * deep,
            *["custom_code"] * (unfolded or _is_prepared(facts["recipe"])),
        ],
        model_name=repo_id.split("/")[-1],
        eval_results=results,
    )


def _repo_name(output_dir: str) -> str:
    """The name of a run's folder, without what a repository's cannot have."""
    return re.sub(r"([^A-Za-z0-9_.]|\.\.+)+", "-", Path(output_dir).name)[:80].strip("-.") or "model"


def _is_joint(recipe: RequiredFacts) -> bool:
    """Whether one tokenizer serves both languages of a model that does not share its embeddings.

    Of tokenizers that were not trained here the recipe tells it only if its author did; they count as two.
    """
    given = "path" in recipe["tokenizer"] or "from_pretrained" in recipe["model"]
    return bool(recipe["tokenizer"].get("joint", TokenizerSection().joint and not given))


def _is_prepared(recipe: RequiredFacts) -> bool:
    """Whether the text was prepared as the papers', by a tokenizer whose code comes with the model."""
    return bool(recipe["tokenizer"].get("kind") == "subword_nmt")


def _corpus(recipe: RequiredFacts, author: Mapping[str, str]) -> str | None:
    """What the author calls the data, or the name of a built-in corpus."""
    return author.get("dataset_name") or recipe["data"].get("builtin")


def _test_set(recipe: RequiredFacts, author: Mapping[str, str]) -> str:
    """The name of the corpus, or of the test set's file or Hub dataset."""
    return _corpus(recipe, author) or Path(recipe["data"]["test"]["source"]).name.split(".")[0]


def filter_rows(counts: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """(filter, pairs it removed, pairs left) in order, from counts that begin with the pairs read."""
    (_, left), *filters = [(name, count) for name, count in counts.items() if name != "kept"]
    rows = [("read", 0, left)]
    for name, removed in filters:
        left -= removed
        rows.append((name, removed, left))
    return rows


def progress(history: Iterable[Mapping[str, Any]]) -> str:
    """A sentence on whether the validation score was still improving when training ended."""
    during = list(takewhile(lambda row: "train_runtime" not in row, history))  # afterwards other weights are scored
    for key, name, sign in (("eval_bleu", "BLEU", 1), ("eval_loss", "NLL", -1)):
        scores = [(row["step"], sign * row[key]) for row in during if row.get(key) is not None]
        if scores:
            return _progress(scores, name)
    return "No validation set was used, so whether training had converged is not known."


def _progress(scores: Sequence[tuple[int, float]], name: str) -> str:
    best, last = max(scores, key=lambda score: score[1])[0], scores[-1][0]
    if len(scores) == 1:
        return f"Validation {name} was measured once, so whether training had converged is not known."
    if len({score for _, score in scores}) == 1:
        return f"Validation {name} was the same at all {len(scores)} evaluations."
    if best == last:
        return (
            f"**Validation {name} was still improving when training ended**: the best of {len(scores)} evaluations is "
            f"the last, at update {last:,}. Longer training may give a better model."
        )
    return f"Validation {name} was best at update {best:,}; the last of {len(scores)} evaluations was at {last:,}."
