"""The parts of the benchmark: what each measures, on which text, and how long that takes on two cores."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ...data.phrasebook import phrasebook
from ...system.cpu_features import cpu_bfloat16_is_fast
from ...system.files import new_folder
from .. import data_preparation, parts, planning_growth, start_time, training_speed, translation_speed
from . import growth
from .part_runner import Case, Part

NEEDED = ("train.en.gz", "train.de.gz", "test_2016_flickr.en.gz", "test_2016_flickr.de.gz")
MULTI30K, PHRASEBOOK = "Multi30k En-De", "the built-in phrasebook"
PAIRS = {False: (29_000, 1_000), True: (300, 20)}  # of training and test, of the phrasebook, by whether it is a trial
SECONDS = {"6-6": 105.0, "4-4": 55.0, "30-6": 75.0, "1-1": 30.0}  # of a round of training
SENTENCES = {False: 300, True: 4}  # to translate


@dataclass(frozen=True)
class Plan:
    """What a call measures.

    Args:
        data: folder of Multi30k; None for that of the shared references where they are, else for the phrasebook.
        cache: folder of what is made of it.
        rounds: of every comparison.
        shapes: of the training; none for all.
        toy: tiny models, to try the command; such numbers mean nothing.
        preparation: fields of `PreparationBenchmark`.
    """

    data: Path | None = None
    cache: Path = Path("runs/cache")
    rounds: int = training_speed.ROUNDS
    shapes: Sequence[str] = field(default_factory=tuple)
    toy: bool = False
    preparation: dict[str, int] = field(default_factory=dict)

    @cached_property
    def corpus(self) -> tuple[Path, str]:
        """The folder of the text and its name.

        Raises:
            ValueError: a file is missing there.
        """
        shared = Path(os.environ.get("ADMIN_NMT_SHARED", "../shared")) / "data" / "multi30k"
        folder = self.data or (shared if shared.is_dir() and not self.toy else None)
        if folder is None:
            return _phrasebook_files(self.cache / f"phrasebook-files{'-toy' * self.toy}", *PAIRS[self.toy]), PHRASEBOOK
        for name in NEEDED:
            if not (folder / name).is_file():
                raise ValueError(f"{folder}: has no {name}; give the folder of Multi30k, or leave --data out")
        return folder.absolute(), MULTI30K

    def case_names(self, names: Sequence[str]) -> list[tuple[int, str, str]]:
        """Each round's number, name and what it is of: a first round of everything, then the next."""
        return [(number, f"{name}, round {number + 1}", name) for number in range(self.rounds) for name in names]


def _phrasebook_files(folder: Path, pairs: int, test: int) -> Path:
    """The phrasebook under the names of Multi30k's files; the first call writes them."""
    import gzip

    if not folder.is_dir():
        splits = phrasebook(pairs, 0, test)
        with new_folder(folder) as temporary:
            for split, name in (("train", "train"), ("test", "test_2016_flickr")):
                for language, lines in zip(("en", "de"), zip(*splits[split], strict=True), strict=True):
                    text = "".join(f"{line}\n" for line in lines)
                    (temporary / f"{name}.{language}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return folder.absolute()


def training(plan: Plan) -> Part:
    """Our trainer against the stock one, at three shapes."""
    known = training_speed.TOY if plan.toy else training_speed.SHAPES
    if unknown := set(plan.shapes) - set(known):
        raise ValueError(f"--shape: {min(unknown)!r} is not one of {', '.join(known)}")
    folder, name = plan.corpus
    args = training_speed.TrainingBenchmark(str(folder), str(plan.cache), 400 if plan.toy else 8000, plan.rounds)
    systems = training_speed.systems(cpu_bfloat16_is_fast() or torch.cuda.is_available())
    cases = [
        Case(case, SECONDS[shape], partial(training_speed.measure_round, known[shape], args, systems, number))
        for number, case, shape in plan.case_names(list(plan.shapes or known))
    ]
    shapes = {shape: asdict(sizes) for shape, sizes in known.items()}
    return Part("training", {"corpus": name, "vocab_size": args.vocab_size, "shapes": shapes}, cases)


def decoding(plan: Plan) -> Part:
    """`Translator` against stock `generate` and CTranslate2."""
    folder, name = plan.corpus
    shapes = ["1-1"] if plan.toy else ["6-6", "18-6"]
    args = translation_speed.TranslationBenchmark(str(folder), rounds=plan.rounds, sentences=SENTENCES[plan.toy])
    settings = {"corpus": name, "sentences": args.sentences, "num_beams": args.num_beams, "steps": args.steps}
    seconds = {"6-6": 60.0, "18-6": 30.0, "1-1": 30.0}
    cases = [Case(shape, seconds[shape] * plan.rounds, partial(decode, args, shape)) for shape in shapes]
    return Part("decoding", settings, cases)


def decode(args: translation_speed.TranslationBenchmark, shape: str) -> Any:
    """The measurements of each system on one shape, by its name in the tables."""
    with TemporaryDirectory() as folder:
        one = vars(args) | {"shapes": [shape], "output": folder}
        translation_speed.run_translation_benchmark(translation_speed.TranslationBenchmark(**one))
        return json.loads((Path(folder) / "translation.json").read_text(encoding="utf-8"))["runs"]


def loss(plan: Plan) -> Part:
    """The loss and DLCL alone."""
    known = parts.TOY if plan.toy else parts.COMPARISONS
    cases = [
        Case(case, 60.0, partial(parts.measure_round, comparison, number, plan.toy))
        for number, case, comparison in plan.case_names(list(known))
    ]
    return Part("loss", {name: asdict(sizes) for name, sizes in known.items()}, cases)


def start(plan: Plan) -> Part:
    """From launch to translation."""
    sizes: dict[str, Any] = {"layers": 1, "d_model": 16, "vocab_size": 400} if plan.toy else {}
    args = start_time.StartBenchmark(rounds=plan.rounds, **sizes)
    settings = {name: getattr(args, name) for name in ("layers", "d_model", "vocab_size")}
    return Part("start", settings, [Case("programs", 50.0 + 25.0 * args.rounds, partial(launch, args))])


def launch(args: start_time.StartBenchmark) -> Any:
    """The rounds of all programs."""
    with TemporaryDirectory() as folder:
        return start_time.run_start_benchmark(replace(args, output=folder))["rounds"]


def data(plan: Plan) -> Part:
    """Preparing a large corpus, and starting on it."""
    sizes = {"pairs": 200, "copies": 2, "vocab_size": 400, "num_proc": 1} if plan.toy else plan.preparation
    args = data_preparation.PreparationBenchmark(str(plan.corpus[0]), **sizes)
    settings = {"corpus": plan.corpus[1]} | {name: value for name, value in asdict(args).items() if name != "data"}
    return Part("data", settings, [Case("preparation", 120.0, partial(data_preparation.measure, args))])


def growing(plan: Plan) -> Part:
    """How cost grows with one size at a time."""
    axes = growth.TOY if plan.toy else growth.AXES
    folder, corpus = plan.corpus
    sizes: dict[str, Any] = {"pairs": (100, 1000), "vocab_size": 400} if plan.toy else {}
    planned = planning_growth.PlanningBenchmark(str(folder), windows=(), **sizes)
    cases = [
        Case(case, 25.0, partial(growth.measure_axis, axes[axis], number))
        for number, case, axis in plan.case_names(list(axes))
    ]
    cases.append(Case("pairs", 180.0, partial(planning_growth.run_planning_benchmark, planned)))
    settings = {name: asdict(axis) for name, axis in axes.items()}
    pairs = {"pairs": {"values": planned.pairs, "max_tokens": planned.max_tokens}}
    return Part("growth", settings | pairs | {"corpus": corpus}, cases)


PARTS = {
    "training": training,
    "decoding": decoding,
    "loss": loss,
    "start": start,
    "data": data,
    "growth": growing,
}


def check_parts(names: Sequence[str]) -> None:
    """Whether there are such parts.

    Raises:
        ValueError: naming them.
    """
    if unknown := [name for name in names if name not in PARTS]:
        raise ValueError(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
