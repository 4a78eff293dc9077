"""A recipe: one YAML file that says what is trained on which data.

The fields of `data.cleaning`, `model` and `training` are those of `CleaningOptions`, `AdminConfig` and
`AdminTrainingArguments`, a training corpus also has those of `Treatment`: names, types, limits and defaults are read
from there. The other sections are written out.
"""

from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from huggingface_hub.errors import StrictDataclassError
from pydantic import Field, field_validator, model_validator

from ..data.cleaning import CleaningOptions
from ..data.corpora import Treatment
from ..data.phrasebook import BUILTIN_CORPORA
from ..data.tokenization.byte_bpe import SMALLEST_VOCABULARY
from ..hub.repositories import check_repository
from ..metrics.languages import language_code
from ..metrics.scores import PUBLISHED
from ..model.configuration_admin import LARGEST, AdminConfig
from ..system.limits import LENGTH_PENALTY
from ..system.messages import FieldError
from ..trainer.arguments import ARGUMENTS_WITHOUT_EFFECT, AdminTrainingArguments
from .sections import OneOrSeveral, Section, checked, section_of
from .yaml_files import load_yaml, parse_overrides, set_field

SMOOTHING, HUB_TOKEN = "label_smoothing_factor", "hub_token"
if TYPE_CHECKING:  # mypy knows the sections by the classes whose fields they have

    class _Treatment(Treatment, Section): ...  # type: ignore[misc]  # as the next

    class _Cleaning(CleaningOptions, Section): ...  # type: ignore[misc]  # one says that it is frozen

    class _Model(AdminConfig, Section): ...

    class _Training(AdminTrainingArguments, Section): ...
else:
    _Treatment = section_of(Treatment)
    _Cleaning = section_of(CleaningOptions)
    # Of what every configuration of transformers has, dtype alone makes sense here; the run itself measures ω.
    _Model = section_of(AdminConfig, only=(*AdminConfig.__annotations__, "dtype"), without=["omega_profiled"])
    _Training = section_of(
        AdminTrainingArguments, without=["output_dir", HUB_TOKEN, *ARGUMENTS_WITHOUT_EFFECT, SMOOTHING]
    )
WITHOUT_EFFECT = ARGUMENTS_WITHOUT_EFFECT | {
    SMOOTHING: "set model.label_smoothing",
    HUB_TOKEN: "recipes are kept and published: log in with `hf auth login`, or set the variable HF_TOKEN",
}
ONE_WIDTH = {
    f"{stack}_{width}": f"both stacks have one width, as in the stock classes: set model.d_model and {stack}_ffn_dim"
    for stack in ("encoder", "decoder")
    for width in ("d_model", "embed_dim")
}
"""A width for each stack, as in Wang et al.'s code, table 6: this model has none."""
MOSES = ("normalize_punctuation", "aggressive_hyphens", "split_final_dots")  # settings of Moses
SCORES = ("loss", "perplexity", "bleu", "chrf")  # of an evaluation in training


class CorpusSection(Section):
    """A corpus: parameters of `load_parallel`."""

    source: str | list[str]
    target: str | list[str] | None = None
    columns: list[str] = Field(default=["source", "target"])
    name: str | None = None
    split: str = "train"


class TrainingCorpusSection(_Treatment, CorpusSection):  # type: ignore[misc]
    """A corpus of training pairs, with the fields of `Treatment`."""


class TestSection(CorpusSection):
    """A corpus, and one more field.

    Args:
        more_references: files of further references, line by line beside `target`, which is the first.
    """

    __test__ = False  # no tests, whatever pytest makes of the name

    more_references: list[str] | None = None


class CleaningSection(_Cleaning):  # type: ignore[misc]
    """Fields of `CleaningOptions`."""


class DataSection(Section):
    """Source of the pairs; `null` is as good as nothing.

    Args:
        root: folder of all files.
        cache_dir: folder of everything that is made of them.
        max_length: most tokens of a side of a training pair; null for no limit.
        builtin: name of a corpus that the package makes, instead of `train`, `valid` and `test`.
        train: a corpus or a list of them, as `admin_nmt.data.corpora.read_corpora` reads them.
        valid: likewise, without `upsample`, `tag` and `detokenize`.
        valid_every: instead of `valid`: every n-th of all training pairs, before the cleaning.
        test: one corpus, perhaps with several references.
        cleaning: of the training pairs.
    """

    root: str | None = None
    cache_dir: str = "runs/cache"
    max_length: int | None = Field(default=256, ge=1)
    builtin: str | None = None
    train: OneOrSeveral[TrainingCorpusSection] | None = None
    valid: OneOrSeveral[CorpusSection] | None = None
    valid_every: int | None = Field(default=None, ge=2)
    test: TestSection | None = None
    cleaning: CleaningSection | None = None

    @model_validator(mode="after")
    def _check_corpora(self) -> Self:
        if self.builtin is not None and self.builtin not in BUILTIN_CORPORA:
            raise FieldError(f"builtin: {self.builtin!r} is not one of {', '.join(BUILTIN_CORPORA)}")
        for split in ("train", "valid", "test"):
            if self.builtin is not None and getattr(self, split) is not None:
                raise FieldError(f"builtin: {self.builtin} has a {split} of its own; leave out builtin, or {split}")
        if self.builtin is None and self.train is None:
            raise ValueError(f"has no train; name its files, or a builtin corpus: {', '.join(BUILTIN_CORPORA)}")
        if self.valid_every is not None and (self.valid is not None or self.builtin is not None):
            raise FieldError("valid_every takes pairs from data.train, and the validation set is given; leave one out")
        return self


class TokenizerSection(Section):
    """The vocabularies, and with `subword_nmt` the preparation of the text as the papers' scripts do it.

    Args:
        kind: `byte_bpe`, a byte-level BPE of raw text, or `subword_nmt`: Moses' tokens, of which subword-nmt learns BPE
            and fairseq-preprocess makes the dictionary. The models of both take raw text and give raw text.
        vocab_size: tokens of a new byte-level BPE, of that of the source if there are two; with `subword_nmt` at most
            so many, as fairseq-preprocess's `--nwordssrc`, and all pieces of the text if it is left out.
        joint: whether a new one serves both languages.
        target_vocab_size: tokens of a byte-level BPE of the target, if there are two; default: as many as the source's.
        path: folder of tokenizers to take instead.
        merges: with `subword_nmt`: `learn-bpe -s`.
        threshold: with `subword_nmt`: pieces that are rarer in the training text are unknown; fairseq-preprocess's
            `--thresholdsrc`.
        normalize_punctuation: with `subword_nmt`: normalize-punctuation.perl and remove-non-printing-char.perl come
            first, for training text and all other (`data.cleaning.normalize: true` instead: for training text alone).
        aggressive_hyphens: with `subword_nmt`: tokenizer.perl's `-a`, which splits `a-b` into `a @-@ b`.
        split_final_dots: with `subword_nmt`: the full stop of a last word such as `etc.` is a token, as tokenizer.perl
            has it since November 2018; false for text that was tokenised before.
    """

    kind: Literal["byte_bpe", "subword_nmt"] = "byte_bpe"
    vocab_size: int = Field(default=8000, ge=SMALLEST_VOCABULARY, le=LARGEST["vocab_size"])
    joint: bool = True
    target_vocab_size: int | None = Field(default=None, ge=SMALLEST_VOCABULARY, le=LARGEST["vocab_size"])
    path: str | None = None
    merges: int | None = Field(default=None, ge=1)
    threshold: int | None = Field(default=None, ge=1)
    normalize_punctuation: bool = False
    aggressive_hyphens: bool = False
    split_final_dots: bool = True

    @property
    def most(self) -> int | None:
        """The size that a new vocabulary must not exceed."""
        return self.vocab_size if self.kind == "byte_bpe" or "vocab_size" in self.given() else None

    @property
    def expected(self) -> int:
        """About the size of the vocabulary, before there is one: merges make most of the pieces."""
        return self.most or self.merges or self.vocab_size

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        for name in self.given():
            if self.kind == "byte_bpe" and name in ("merges", "threshold", *MOSES):
                raise FieldError(f"{name} belongs to kind: subword_nmt; set that, or leave {name} out")
        if self.kind == "subword_nmt" and self.path is not None:
            raise FieldError("kind: subword_nmt makes a new vocabulary, and path names one that exists; leave one out")
        if self.kind == "subword_nmt" and self.target_vocab_size is not None:
            raise FieldError("target_vocab_size belongs to kind: byte_bpe; leave it out")
        if self.kind == "subword_nmt" and self.merges is None:
            raise FieldError("kind: subword_nmt needs merges, such as merges: 32000")
        return self

    def sizes(self) -> list[tuple[str, int]]:
        """The field that gives the size of each new vocabulary, and the size: the joint one, or source and target.

        A size of 0 stands for as many as there are pieces.
        """
        source = ("vocab_size", self.most or 0)
        target = ("target_vocab_size", self.target_vocab_size) if self.target_vocab_size is not None else source
        return [source] if self.joint else [source, target]

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.target_vocab_size is not None and self.joint:
            raise FieldError("target_vocab_size is that of a vocabulary of the target alone; set joint: false, too")
        return self


class ModelSection(_Model):
    """Fields of `AdminConfig`, and these.

    Args:
        dtype: of the weights, such as `bfloat16`; null for float32.
        attn_implementation: as for `from_pretrained` of transformers.
        from_pretrained: folder or repository of a model to start from.
    """

    without_effect = ONE_WIDTH
    attn_implementation: str | None = None
    from_pretrained: str | None = None

    def configuration(self) -> dict[str, Any]:
        """The fields of `AdminConfig` that were given."""
        own = ("attn_implementation", "from_pretrained")
        return {name: value for name, value in self.given().items() if name not in own}

    @model_validator(mode="after")
    def _check_configuration(self) -> Self:
        settings = self.configuration()
        if self.from_pretrained is not None:  # its configuration has the other fields
            return self
        for name in {"vocab_size", "decoder_vocab_size"} & set(settings):
            raise FieldError(f"{name} is that of the tokenizer; set tokenizer.vocab_size instead")
        try:
            AdminConfig(vocab_size=LARGEST["vocab_size"], **settings)  # as many as no token id can exceed
        except StrictDataclassError as error:  # whose cause is what the configuration says
            raise FieldError(str(error.__cause__ or error)) from error
        return self


class TrainingSection(_Training):
    """Fields of `AdminTrainingArguments`, and one more.

    Args:
        early_stopping_patience: evaluations without a better `metric_for_best_model` after which training ends.
    """

    without_effect = WITHOUT_EFFECT
    early_stopping_patience: int | None = Field(default=None, ge=1)
    fsdp: bool | str | None = AdminTrainingArguments.fsdp  # documented as true or false, annotated as text

    def arguments(self) -> dict[str, Any]:
        """The fields of `AdminTrainingArguments` that were given."""
        return {name: value for name, value in self.given().items() if name != "early_stopping_patience"}

    @field_validator("max_steps")
    @classmethod
    def _check_updates(cls, updates: int) -> int:
        if updates < 1 and updates != -1:
            raise ValueError(f"is {updates}; give at least 1, or leave it out for num_train_epochs")
        return updates


class EvaluationSection(Section):
    """Choice and scores of the finished model.

    Args:
        average_last: average this many last checkpoints, and take the average if it is better.
        always_average: take the average whatever it scores, as both papers do.
        num_beams: beam size of the test set's translation, and of the saved model by default.
        length_penalty: hypothesis scores are divided by length to this power.
        published_bleu: also BLEU of the test set as this paper computed it, a name in
            `admin_nmt.metrics.scores.PUBLISHED`.
    """

    average_last: int = Field(default=0, ge=0)
    always_average: bool = False
    num_beams: int = Field(default=5, ge=1)
    length_penalty: int | float = Field(default=1.0, ge=LENGTH_PENALTY["ge"], le=LENGTH_PENALTY["le"])
    published_bleu: str | None = None

    @field_validator("published_bleu")
    @classmethod
    def _check_paper(cls, paper: str | None) -> str | None:
        if paper is not None and paper not in PUBLISHED:
            raise ValueError(f"is {paper!r}; choose from {', '.join(PUBLISHED)}, or leave it out")
        return paper


class CardSection(Section):
    """Facts that only the author knows, for the model card.

    Args:
        license: of the model, as the Hub names it.
        dataset_name: what to call the data.
        dataset_type: name of a dataset on the Hub.
        note: a paragraph.
        example: a source sentence.
        repo_id: where the standard model will be on the Hub.
    """

    license: str | None = None
    dataset_name: str | None = None
    dataset_type: str | None = None
    note: str | None = None
    example: str | None = None
    repo_id: str | None = None

    @field_validator("repo_id")
    @classmethod
    def _check_repository(cls, name: str | None) -> str | None:
        if name is not None:
            check_repository(name)
        return name


class Recipe(Section):
    """The sections of a recipe; one that is left out has its defaults.

    Args:
        output_dir: folder of the run: checkpoints, logs, results.
        languages: [source, target], for scores and Moses' rules.
    """

    _called: str = "recipe"  # by errors that come later than the file's
    output_dir: str
    data: DataSection
    tokenizer: TokenizerSection = TokenizerSection()
    model: ModelSection = ModelSection()
    training: TrainingSection = TrainingSection()
    evaluation: EvaluationSection = EvaluationSection()
    languages: list[str] = Field(default=["en", "de"])
    card: CardSection = CardSection()

    @model_validator(mode="before")
    @classmethod
    def _expand_home(cls, values: Any) -> Any:
        """`~` in every path, as the Trainer does it in that of its checkpoints."""
        return at_home(values)

    def as_dict(self) -> dict[str, Any]:
        """All sections, each with the fields that were given, as results.json and the run's recipe.yaml hold them."""
        given = self.given()
        return {name: given.get(name, {}) for name in type(self).model_fields} | {"languages": self.languages}

    @field_validator("languages", mode="before")
    @classmethod
    def _check_languages(cls, codes: Any) -> Any:
        check_languages(codes)
        return codes

    @model_validator(mode="after")
    def _check_preparation(self) -> Self:
        """Check that the sections data, tokenizer and model agree on what is made of the text."""
        cleaning = self.data.cleaning or CleaningSection()
        new = self.tokenizer.kind == "subword_nmt"
        if cleaning.count == "subwords" and not new:
            raise ValueError("data.cleaning.count: subwords needs tokenizer.kind: subword_nmt; give words, or set that")
        if cleaning.normalize and self.tokenizer.normalize_punctuation:
            raise ValueError(
                "data.cleaning.normalize is for training text alone, tokenizer.normalize_punctuation for all text; "
                "leave one out"
            )
        if new and self.model.from_pretrained is not None:
            raise ValueError(
                "tokenizer.kind: subword_nmt makes a new vocabulary, and the model of model.from_pretrained has one; "
                "leave one out"
            )
        return self

    @model_validator(mode="after")
    def _check_selection(self) -> Self:
        """Check that evaluations, early stopping and averaging find what they need."""
        training, average_last = self.training, self.evaluation.average_last
        held_out = (self.data.valid, self.data.valid_every, self.data.builtin)
        if training.eval_strategy != "no" and all(source is None for source in held_out):
            raise ValueError(
                f"training.eval_strategy is {training.eval_strategy!r}, which needs data.valid; name its files, or "
                "leave eval_strategy out"
            )
        metric = training.metric_for_best_model
        if metric is not None and metric.removeprefix("eval_") not in SCORES:
            known = ", ".join(f"eval_{name}" for name in SCORES)
            raise ValueError(f"training.metric_for_best_model is {metric!r}; choose one of {known}")
        if metric is not None and metric.removeprefix("eval_") in ("bleu", "chrf") and not training.eval_bleu:
            raise ValueError(f"training.metric_for_best_model is {metric!r}, which needs training.eval_bleu: true")
        if training.early_stopping_patience is not None and not training.metric_for_best_model:
            raise ValueError("training.early_stopping_patience needs metric_for_best_model, such as eval_bleu")
        if training.early_stopping_patience is not None and training.eval_strategy == "no":
            raise ValueError("training.early_stopping_patience needs evaluations; set training.eval_strategy")
        if average_last > 1 and training.save_strategy == "no":
            raise ValueError(
                f"evaluation.average_last is {average_last}, and training.save_strategy 'no' leaves no checkpoints; "
                "leave one of the two out"
            )
        needed, limit = average_last + training.load_best_model_at_end, training.save_total_limit
        if limit is not None and limit < needed:
            raise ValueError(
                f"training.save_total_limit {limit} deletes checkpoints that evaluation.average_last "
                f"{average_last} needs; set it to {needed} or more"
            )
        return self


def check_languages(codes: Any) -> None:
    """Check that these are the codes of two languages.

    Raises:
        ValueError: saying what is wrong with them.
    """
    if not isinstance(codes, list) or len(codes) != 2 or not all(isinstance(code, str) for code in codes):
        raise ValueError(f"holds {codes!r}; write two codes in quotes, source and target")
    for code in codes:
        try:
            language_code(code)
        except ValueError as error:
            raise ValueError(f"holds {codes!r}: {error}") from error


def at_home(value: Any) -> Any:
    """A value of a file, or all in it, with the home folder in place of a leading `~/`."""
    if isinstance(value, dict):
        return {name: at_home(item) for name, item in value.items()}
    if isinstance(value, list):
        return [at_home(item) for item in value]
    return expanduser(value) if isinstance(value, str) and value.startswith("~/") else value


def load_recipe(path: str | Path, overrides: list[str] | None = None, called: str | None = None) -> Recipe:
    """Read a recipe; `overrides` is a list such as ["--training.max_steps", "100", "--model.variant", "post_ln"].

    Args:
        called: what errors call the recipe, if not by its path.

    Raises:
        ValueError: naming the file or the override that is wrong, the field, and what belongs there.
    """
    values, changes = load_yaml(path, called), parse_overrides(overrides or [])
    for name, value in changes:
        set_field(values, name, value)
    recipe = checked(Recipe, values, called or path, [name for name, _ in changes])
    recipe._called = str(called or path)
    return recipe
