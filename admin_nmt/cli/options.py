"""Options that commands share, and checks of what they get.

A wrong option must be refused at once: nothing here loads torch, transformers or datasets before a command runs.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..decoding.options import Engine, Sampling, SearchOptions
from ..metrics.languages import language_code


def check_output(path: Path | None) -> Path | None:
    """Refuse a file that cannot be written, before hours of work and not after."""
    if path is None:
        return None
    folder = path.absolute().parent
    if (path.exists() and not path.is_file()) or folder == Path("/dev"):
        raise typer.BadParameter(f"{path} is no ordinary file; name one, or leave the option out")
    if not folder.is_dir():
        raise typer.BadParameter(f"{path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise typer.BadParameter(f"{path}: {folder} may not be written; choose another folder")
    return path


def check_language(code: str | None) -> str | None:
    """Refuse what is no code of a language, which the scores' tokenisers would silently treat as another language."""
    try:
        return None if code is None else language_code(code)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def check_repository(name: str | None) -> str | None:
    """Refuse a name that the Hub cannot have."""
    from ..hub import repositories as hub

    try:
        if name is not None:
            hub.check_repository(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return name


def check_device(name: str | None) -> None:
    """Refuse a device that is not there; commands call it when they run, since only torch knows."""
    from ..system.devices import checked_device

    try:
        checked_device(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--device'") from error


Model = Annotated[str, typer.Argument(help="Folder or Hub repository of a model.", show_default=False)]
NewFolder = Annotated[Path, typer.Option(help="Output folder; must not exist, or be empty.")]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.", show_default=False)]
RecipeFile = Annotated[
    str, typer.Argument(metavar="RECIPE", help="YAML file or name of a built-in recipe.", show_default=False)
]
Source = Annotated[str, typer.Option(help="Source sentences (.gz too), or a .tsv, .jsonl or .parquet file of pairs.")]
Target = Annotated[str | None, typer.Option(help="Their translations, line by line, unless SOURCE holds pairs.")]
Chunk = Annotated[int, typer.Option(min=1, help="Number of lines to sort, translate and save together.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, …; default: a GPU if there is one.")]
Devices = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1, …, or cuda:0,cuda:1,… for a process on each; default: a GPU if any."),
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Number of processes, each with a model, sharing devices or cores.")
]
OnCluster = Annotated[
    str | None,
    typer.Option("--cluster", help="Dask cluster that does the work: tcp://HOST:PORT, or its scheduler file."),
]


@dataclass(frozen=True)
class SearchArguments:
    """Search options.

    Those of a command line; `options` makes the library's of them.
    """

    num_beams: Annotated[
        int | None, typer.Option(min=1, help="Beam size; 1 is greedy search. Default: the model's, or 5.")
    ] = None
    length_penalty: Annotated[
        float | None, typer.Option(help="Exponent of the length penalty; default: the model's.")
    ] = None
    forbid: Annotated[
        list[str] | None, typer.Option(help="Word or phrase that no translation contains; repeatable.")
    ] = None
    sampling: Annotated[bool, typer.Option("--sampling", help="Sample translations instead of beam search.")] = False
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Sample from the k most likely tokens; default: from all.")
    ] = None
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature; default: 1.")] = None
    seed: Annotated[int | None, typer.Option(help="Random seed for --sampling; default: 1.")] = None
    batch_tokens: Annotated[int, typer.Option(min=1, help="Batch size in source tokens, padding included.")] = 4096

    def __post_init__(self) -> None:
        for name in self._drawing():
            if not self.sampling:
                raise ValueError(f"--{name.replace('_', '-')} goes with --sampling; add that, or leave it out")
        if self.sampling and self.num_beams is not None:
            raise ValueError("--num-beams belongs to beam search; leave it out, or --sampling")
        Sampling(**self._drawing())  # checks its limits

    def options(self, folder: Path, **others: Any) -> SearchOptions:
        """Options of the search with the model of a folder, by which beams are as many as it was saved with."""
        from ..hub.model_folder import beam_size

        return SearchOptions(
            num_beams=self.num_beams or beam_size(folder),
            length_penalty=self.length_penalty,
            forbidden=tuple(self.forbid or ()),
            sampling=Sampling(**self._drawing()) if self.sampling else None,
            batch_tokens=self.batch_tokens,
            **others,
        )

    def _drawing(self) -> dict[str, Any]:
        """The settings of sampling that are given."""
        given = {"top_k": self.top_k, "temperature": self.temperature, "seed": self.seed}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class EngineArguments(Engine):
    """Inference engine."""

    backend: Annotated[Literal["torch", "ctranslate2"], typer.Option(help="PyTorch or CTranslate2.")] = "torch"
    compute_type: Annotated[
        str | None, typer.Option(help="CTranslate2's compute type: int8, float16, …; default: float32.")
    ] = None
    dtype: Annotated[
        str | None, typer.Option(help="torch's dtype: float32, bfloat16 or float16; default: that of the weights.")
    ] = None
