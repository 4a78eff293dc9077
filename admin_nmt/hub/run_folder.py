"""A run's folder: the names of what is in it, and its results.json as typed facts.

Cards, tables, pictures and the page in the browser are made of these facts alone. A run that diverged has no `search`,
`chosen`, `export` and `test`; one without a test set no `test` and `decoding`.
"""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from ..system.files import json_text, write_text_whole
from ..system.messages import sentence

FINAL, STANDARD = "final", "standard"  # the model as trained, and the same as a class of transformers
RECIPE, PAIRS, RESULTS, CURVE = "recipe.yaml", "training_pairs.json", "results.json", "curve.png"
REHEARSAL = ".rehearsal"  # a folder that is there for a moment, before training
SOURCES, TRANSLATIONS = "test.src", "test.hyp"
NO_TRANSLATION, NO_TRANSLATION_CHRF = 2.0, 20.0  # BLEU and chrF below which output resembles references by chance
DEGENERATE = 0.1  # different translations of each different source, at most: the model hardly reads them


def reference_name(number: int) -> str:
    """The file of a test set's references number 0, 1, 2: test.ref, then test.ref1, test.ref2 and so on."""
    return f"test.ref{number or ''}"


class Facts(BaseModel):
    """A part of results.json; what else is in it stays in it."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class Divergence(Facts):
    """The update at which a run diverged, and why it counts as diverged."""

    update: int
    reason: str


class RecipeFacts(Facts):
    """The recipe with the fields that were given, as `admin_nmt.runs.recipe.Recipe.as_dict` gives them."""

    output_dir: str
    data: dict[str, Any]
    tokenizer: dict[str, Any] = {}
    model: dict[str, Any] = {}
    training: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    languages: list[str] = Field(min_length=2, max_length=2)
    card: dict[str, Any] = {}


class DataFacts(Facts):
    """Pairs that each filter removed, pairs of each split, and tokens of the longest training sentence."""

    filters: dict[str, int]
    sizes: dict[str, int]
    longest: int


class ModelFacts(Facts):
    """Shape, parameters (a tied one counts once), and the fields of config.json that are not as by default."""

    variant: str
    encoder_layers: int
    decoder_layers: int
    d_model: int
    encoder_ffn_dim: int
    decoder_ffn_dim: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    vocab_size: int
    decoder_vocab_size: int
    parameters: int
    config: dict[str, Any]


class OmegaFacts(Facts):
    """Origin of ω, and its mean in each sublayer from the bottom of a stack."""

    origin: str
    trained: bool = False
    encoder: list[float]
    decoder: list[float]


class TrainingFacts(Facts):
    """Settings and effort of a training; minutes and memory are those of all legs of a run that was resumed."""

    seed: int
    optimizer: str
    learning_rate: float
    warmup_steps: int | float
    max_tokens: int
    gradient_accumulation_steps: int
    label_smoothing: float
    updates: int
    minutes: float  # without evaluations
    evaluation_minutes: float = 0.0
    target_tokens: int
    tokens_per_second: float | None
    peak_memory_gb: float | None = None
    processes: int
    threads: int | None = None
    device: str
    precision: str
    attention: str | None = None
    activation_checkpointing: bool | None = None


class Search(Facts):
    """Settings of the beam search that the saved models have by default, and that the test set was translated with."""

    num_beams: int
    length_penalty: int | float


class Chosen(Facts):
    """The weights that were taken, and the scores on the validation set of all that could have been."""

    kind: str
    valid: dict[str, dict[str, float]]
    updates: int

    @property
    def scores(self) -> dict[str, float]:
        """Validation scores of the weights that were taken, such as `eval_loss` and `eval_bleu`."""
        return self.valid.get(self.kind, {})


class Export(Facts):
    """The class of the standard model and its largest error, or why there is no standard model."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)
    class_name: str | None = Field(default=None, alias="class")
    variant: str | None = None
    max_logit_error: FiniteFloat | None = None
    refused: str | None = None


class TestScores(Facts):
    """Scores of the test set, with sacreBLEU's signatures; BLEU as a paper computed it where the recipe names one."""

    __test__ = False  # no test, whatever pytest makes of the name

    bleu: FiniteFloat
    bleu_signature: str
    chrf: FiniteFloat
    chrf_signature: str
    ter: FiniteFloat
    ter_signature: str
    tokenized_lowercase_bleu: FiniteFloat
    tokenized_bleu: FiniteFloat | None = None
    published_bleu: FiniteFloat | None = None
    paper: str | None = None

    @property
    def is_translation(self) -> bool:
        """False for output that resembles the references by chance alone.

        chrF is looked at too, since BLEU stays near 0 in languages that are written without spaces.
        """
        return self.bleu >= NO_TRANSLATION or self.chrf >= NO_TRANSLATION_CHRF


class Decoding(Facts):
    """Speed of the test set's translation, by all processes together."""

    sentences_per_second: float
    device: str
    processes: int = 1
    precision: str | None = None
    threads: int | None = None


class Results(Facts):
    """Everything that results.json holds; `history` is the log of transformers' Trainer."""

    status: Literal["finished", "diverged"]
    diverged: Divergence | None = None
    recipe: RecipeFacts
    data: DataFacts
    model: ModelFacts
    omega: OmegaFacts | None = None
    training: TrainingFacts
    versions: dict[str, str]
    commit: str | None = None
    history: list[dict[str, Any]]
    search: Search | None = None
    chosen: Chosen | None = None
    export: Export | None = None
    test: TestScores | None = None
    test_sentences: int | None = None
    distinct_translations: float | None = None
    decoding: Decoding | None = None


def write_results(folder: Path, results: Results) -> None:
    """Write results.json in one step, so that it is there whole or not at all."""
    write_text_whole(folder / RESULTS, json_text(results.model_dump(exclude_unset=True), indent=1) + "\n")


def load_results(folder: Path) -> Results:
    """The facts of a run that has ended.

    Raises:
        ValueError: naming the file, which is absent or damaged, and the field that is wrong.
    """
    file = folder / RESULTS
    if not file.is_file():
        raise ValueError(f"{file}: is missing, so the run has not finished, or this is no run")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: is no valid JSON ({error}); train the model anew") from error
    if not isinstance(values, dict):
        raise ValueError(f"{file}: is no JSON object; train the model anew")
    try:
        return Results.model_validate(values)
    except ValidationError as error:
        raise ValueError(f"{file}: {sentence(error, values)[1]}; train the model anew") from error


def results_or_none(folder: Path) -> Results | None:
    """The facts of a run that has ended, None of one that has not, or whose file is damaged."""
    try:
        return load_results(folder)
    except ValueError:
        return None
