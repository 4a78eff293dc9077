"""Cards: the README.md of a run's models, of an export, and of a Space.

All are made here, from facts that are handed over: the front matter by huggingface_hub, the text by a template of
`card_templates/`, in which one snippet shows how a model is used. What the package reads of a card is here too.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from huggingface_hub import CardData, EvalResult, ModelCardData, SpaceCardData, metadata_load
from huggingface_hub.utils import validate_repo_id
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from yaml import YAMLError

from ..data.tokenization.tokenizer_folder import TARGET_FOLDER
from ..metrics.languages import language_name
from ..model.configuration_admin import AdminConfig
from ..system.files import write_text_whole
from ..system.markdown import escaped
from .run_folder import FINAL, STANDARD, RecipeFacts, Results, TestScores

CARD, OMEGA = "README.md", "omega.png"
METRICS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).with_name("card_templates")), undefined=StrictUndefined)
TEMPLATES.filters |= {"text": escaped, "code": lambda text: re.sub(r"[\s`]+", " ", text)}
# What this package reads of a card that it wrote: the example sentences of the snippet.
SENTENCES = re.compile(r"^sentences = (\[.*\])$", re.MULTILINE)
PLACEHOLDER = re.compile(r"A sentence .+\.")  # where nobody gave an example, and in English for any language


def run_card(facts: Results, folder: Path, repo_id: str | None = None) -> str:
    """Render the card of one model of a run; the same facts give the same text.

    Args:
        facts: of a finished run with a test set.
        folder: `standard` or `final`, below the run's; only the names are looked at.
        repo_id: where the standard model is published; default: what the recipe says, else USER and the run's name.

    Raises:
        ValueError: the run has no such model, or no repository can have that name.
    """
    assert facts.export is not None and facts.test is not None  # a finished run, as runs/cards.py reads it
    unfolded = folder.name == FINAL
    if folder.name not in (STANDARD, FINAL):
        raise ValueError(f"{folder}: a card describes {STANDARD}/ or {FINAL}/ of a run; give one of them")
    recipe, refused = facts.recipe, facts.export.refused
    if refused and not unfolded:
        raise ValueError(
            f"{folder}: the run has no standard model ({refused}); make the card of {folder.with_name(FINAL)}"
        )
    author = recipe.card
    stock_id = repo_id or author.get("repo_id") or f"USER/{_repo_name(recipe.output_dir)}"
    validate_repo_id(stock_id)  # the card shows it in commands to copy
    repo_id = f"{stock_id}-admin" if unfolded and not refused else stock_id
    languages = recipe.languages
    corpus = author.get("dataset_name") or recipe.data.get("builtin")
    test_set = corpus or Path(recipe.data["test"]["source"]).name.split(".")[0]
    config = AdminConfig.from_dict(facts.model.config)
    prepared = recipe.tokenizer.get("kind") == "subword_nmt"  # as the papers' text, by code that comes along
    header = _header(
        repo_id,
        config.variant,
        layers=max(config.encoder_layers, config.decoder_layers),
        language=list(dict.fromkeys(languages)),
        license=author.get("license") or "unknown",
        dataset=author.get("dataset_type"),
        code=unfolded or prepared,
        scores=_scores(facts.test, languages, test_set, author.get("dataset_type")),
    )
    source, target = (escaped(language_name(code)) for code in languages)
    return _page(
        header,
        "run.md.jinja",
        facts=facts,
        author=author,
        config=config,
        repo_id=repo_id,
        stock_id=stock_id,
        unfolded=unfolded,
        refused=escaped(refused) if refused else None,
        joint=config.share_encoder_decoder_embeddings or _is_joint(recipe),
        prepared=prepared,
        source=source,
        target=target,
        corpus=escaped(corpus) if corpus else None,
        test_set=escaped(test_set),
        example=json.dumps(author.get("example") or f"A sentence in {source}.", ensure_ascii=False),
        filters=filter_rows(facts.data.filters),
        progress=progress(facts.history),
        metrics=METRICS,
    )


def _page(header: CardData, template: str, **facts: Any) -> str:
    """The text of a card: its front matter, then the template filled with facts."""
    return f"---\n{header}\n---\n\n{TEMPLATES.get_template(template).render(**facts).strip()}\n"


def _header(
    name: str,
    variant: str,
    *,
    layers: int,
    code: bool,
    language: list[str] | None = None,
    license: str | None = None,
    dataset: str | None = None,
    scores: list[EvalResult] | None = None,
) -> ModelCardData:
    """The front matter of a model.

    Args:
        name: of the model, without its user.
        layers: of the deeper stack.
        code: whether code comes with the model, which `trust_remote_code` has to allow.
    """
    return ModelCardData(
        language=language,
        license=license,
        library_name="transformers",
        pipeline_tag="translation",
        datasets=[dataset] if dataset else None,
        metrics=list(METRICS) if scores else None,
        tags=["admin_nmt", variant, *["deep-transformer"] * (layers > 6), *["custom_code"] * code],
        model_name=name.split("/")[-1],
        eval_results=scores,
    )


def _scores(test: TestScores, languages: Sequence[str], test_set: str, dataset_type: str | None) -> list[EvalResult]:
    """The scores of the test set; each carries its sacreBLEU signature in the metric's `args`."""
    return [
        EvalResult(
            task_type="translation",
            task_name=f"Translation {languages[0]}-{languages[1]}",
            dataset_name=test_set,
            dataset_type=dataset_type or re.sub(r"[^a-z0-9]+", "-", test_set.lower()).strip("-"),
            dataset_split="test",
            metric_type=metric,
            metric_name=name,
            metric_value=round(getattr(test, metric), 2),
            metric_args={"signature": getattr(test, f"{metric}_signature")},
        )
        for metric, name in METRICS.items()
    ]


def write_export_card(folder: Path, name: str | None = None) -> Path:
    """Write the card of a folder that `export_standard` has written, from its export.json and configuration.

    Args:
        folder: where the export is.
        name: of the model; by default the folder's.

    Returns:
        The path of README.md. The card of a run, with data and scores, takes this one's place.
    """
    facts = json.loads((folder / "export.json").read_bytes())
    config = json.loads((folder / "config.json").read_bytes())
    tokenizer = json.loads((folder / "tokenizer_config.json").read_bytes())
    code = "auto_map" in tokenizer
    encoder, decoder = config["encoder_layers"], config["decoder_layers"]
    text = _page(
        _header(name or folder.name, facts["variant"], layers=max(encoder, decoder), code=code),
        "export.md.jinja",
        encoder_layers=encoder,
        decoder_layers=decoder,
        name=name or folder.name,
        kind=config["architectures"][0],
        variant=facts["variant"],
        trained=AdminConfig(variant=facts["variant"]),
        error=facts["max_logit_error"],
        tokenizer_loading=", trust_remote_code=True" if code else "",
        joint=not (folder / TARGET_FOLDER).is_dir(),
    )
    write_text_whole(folder / CARD, text)
    return folder / CARD


def space_card(title: str, model: str, license: str | None, version: str, sdk_version: str, python: str) -> str:
    """Render the card of a Gradio Space.

    Args:
        title: of the page. model: the repository that it shows.
        license: of the model.
        version: of this package. sdk_version: of Gradio. python: of Python, as "3.11".
    """
    header = SpaceCardData(
        title=title,
        sdk="gradio",
        sdk_version=sdk_version,
        python_version=python,
        app_file="app.py",
        models=[model],
        license=license,
        emoji="🌍",
        colorFrom="blue",
        colorTo="indigo",
    )
    return _page(header, "space.md.jinja", title=title, model=model, version=version)


@dataclass(frozen=True)
class CardFacts:
    """Facts that a card of this package states, which the page and the commands read.

    Args:
        languages: codes of source and target.
        license: of the weights; None if it is not stated.
        examples: the sentences that its snippet translates.
    """

    languages: tuple[str, str] | None = None
    license: str | None = None
    examples: tuple[str, ...] = ()


def read_card(folder: Path) -> CardFacts:
    """The facts of a folder's card; none of a card that this package did not write, or that is not there.

    Elsewhere the languages stand in any order; our cards name the source first.

    Raises:
        ValueError: the card's header cannot be read.
    """
    path = folder / CARD
    if not path.is_file():
        return CardFacts()
    try:
        header = metadata_load(path)
    except (ValueError, RecursionError, YAMLError) as error:
        raise ValueError(f"{path}: its header is no valid YAML; render the card again, or remove it") from error
    tags = header.get("tags") if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(tags, list) or "admin_nmt" not in tags:
        return CardFacts()
    languages: Any = header.get("language")
    pair = isinstance(languages, list) and len(languages) == 2 and all(isinstance(one, str) for one in languages)
    found = SENTENCES.search(path.read_text(encoding="utf-8"))
    examples = json.loads(found[1]) if found else []
    return CardFacts(
        languages=(languages[0], languages[1]) if pair else None,
        license=None if header.get("license") == "unknown" else header.get("license"),
        examples=tuple(one for one in examples if not PLACEHOLDER.fullmatch(one)),
    )


def _repo_name(output_dir: str) -> str:
    """The name of a run's folder, without what a repository's cannot have."""
    return re.sub(r"([^A-Za-z0-9_.]|\.\.+)+", "-", Path(output_dir).name)[:80].strip("-.") or "model"


def _is_joint(recipe: RecipeFacts) -> bool:
    """Tell whether one tokenizer serves both languages of a model that does not share its embeddings.

    Of tokenizers that were not trained here the recipe tells it only if its author did; they count as two.
    """
    given = "path" in recipe.tokenizer or "from_pretrained" in recipe.model
    return bool(recipe.tokenizer.get("joint", not given))


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
