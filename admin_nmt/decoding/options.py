"""Options of a search and of what computes it, shared by `translate`, `synthesize`, `evaluate`, the demo and Python.

Each limit stands beside its field and is checked once, at construction, by nothing heavier than the standard library:
a wrong option is refused before torch is loaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from ..system.limits import LENGTH_PENALTY, check_limits

DTYPES = ("float32", "bfloat16", "float16")
POSITIVE = {"ge": 1}


@dataclass(frozen=True)
class Sampling:
    """Draw translations from the model's distribution instead of searching (Edunov et al. 2018, section 3).

    The translation of a sentence is a function of the model, the seed and the sentence, whatever else is translated
    with it, in whatever order and on however many processes; up to the rounding of logits, which differs a little
    between batches. The same sentence twice gets the same translation twice.

    Attributes:
        seed: another seed gives other translations.
        top_k: sample from the k most likely tokens; None for all, which is unrestricted sampling.
        temperature: logits are divided by it.
    """

    seed: int = 1
    top_k: int | None = field(default=None, metadata=POSITIVE)
    temperature: float = field(default=1.0, metadata={"ge": 0.001})

    def __post_init__(self) -> None:
        check_limits(self)


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search for translations.

    Attributes:
        num_beams: beam size; 1 is greedy search. None for the model's own, as of each field that may be None.
        length_penalty: a hypothesis is scored by its log-probability over length^length_penalty.
        nbest: translations of a sentence, at most `num_beams`; with `sampling`, so many are drawn.
        min_new_tokens, max_new_tokens: of a translation, without end of sentence.
        forbidden: words and phrases that no translation contains.
        sampling: draw translations instead of searching for the best; the beam does not matter then.
        batch_tokens: source positions of a batch, padding included; memory grows with this times `num_beams`.
        generate: further settings of transformers' `generate`, which then takes the place of the search here.

    Raises:
        TypeError: `forbidden` is a single string.
        ValueError: a field is beyond its limit, or does not go with another one.
    """

    num_beams: int | None = field(default=None, metadata=POSITIVE)
    length_penalty: float | None = field(default=None, metadata=LENGTH_PENALTY)
    nbest: int = field(default=1, metadata=POSITIVE)
    min_new_tokens: int | None = field(default=None, metadata={"ge": 0})
    max_new_tokens: int | None = field(default=None, metadata=POSITIVE)
    forbidden: Sequence[str] = ()
    sampling: Sampling | None = None
    batch_tokens: int = field(default=4096, metadata=POSITIVE)
    generate: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_limits(self)
        if isinstance(self.forbidden, str):
            raise TypeError("forbidden: is a single string; give a list of strings")
        if not all(text.strip() for text in self.forbidden):
            raise ValueError("forbidden: a text is blank; give a word or a phrase")
        if any("\ud800" <= character <= "\udfff" for text in self.forbidden for character in text):
            raise ValueError(f"forbidden: {list(self.forbidden)!a} holds half a surrogate pair")
        if self.sampling is None and self.num_beams is not None and self.nbest > self.num_beams:
            raise ValueError(
                f"nbest is {self.nbest}, but num_beams is {self.num_beams}; give 1 to {self.num_beams}, or more beams"
            )
        if twice := self.generate.keys() & {one.name for one in fields(self)}:
            raise ValueError(f"generate: holds {min(twice)}, which is an option of its own; give it there")

    def search_arguments(self) -> dict[str, Any]:
        """Arguments of `search_ids`; forbidden texts become a processor, which needs the tokenizer."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("forbidden", "generate")}
        return given | dict(self.generate)

    def settings(self) -> dict[str, Any]:
        """Fields that translations depend on and that are not as by default, as JSON."""
        given = {name: value for name, value in asdict(self).items() if value != getattr(SearchOptions(), name)}
        given.pop("batch_tokens", None)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Library that computes a search, and its precision.

    Attributes:
        backend: the library.
        compute_type: of CTranslate2: "float32" (the default, same translations as torch), "int8", "auto", ...
        dtype: of torch: "float32", "bfloat16" or "float16"; by default that of the weights.

    Raises:
        ValueError: a field belongs to another backend, or there is no such dtype.
    """

    backend: Literal["torch", "ctranslate2"] = "torch"
    compute_type: str | None = None
    dtype: Any = None

    def __post_init__(self) -> None:
        if self.backend not in ("torch", "ctranslate2"):
            raise ValueError(f"backend: {self.backend!r} is neither 'torch' nor 'ctranslate2'")
        if self.backend == "torch" and self.compute_type is not None:
            raise ValueError("compute_type: belongs to the backend 'ctranslate2'; torch has dtype")
        if self.backend == "ctranslate2" and self.dtype is not None:
            raise ValueError("dtype: belongs to the backend 'torch'; CTranslate2 has compute_type")
        if self.dtype is not None and str(self.dtype).removeprefix("torch.") not in DTYPES:
            raise ValueError(f"dtype: {str(self.dtype)!r} is not one of {', '.join(DTYPES)}")

    def settings(self) -> dict[str, Any]:
        """The fields that are given, as JSON."""
        return {name: str(value) for name, value in asdict(self).items() if value is not None}
