"""Synthetic training pairs from a trained model, on as many processes as were launched."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Literal

from accelerate import PartialState

from ..data.cleaning import CleaningOptions
from ..data.dask_cluster import Cluster
from ..hub.model_folder import fingerprint, local_folder
from .options import Engine, SearchOptions
from .synthesis import here, synthesize, translate_whole
from .translator import Translator
from .usual_scores import noting


def write_synthetic_pairs(
    model: str | Path,
    inputs: list[str],
    output: str,
    generates: Literal["source", "target"],
    *,
    options: SearchOptions,
    engine: Engine,
    filters: CleaningOptions,
    chunk: int = 2000,
    cluster: str | None = None,
) -> dict[str, int]:
    """Translate files with a model and leave the pairs that pass the filters in a TSV file, source and target.

    Killed, the same call continues after the finished lines, on any number of processes, each of which makes it.

    Args:
        model: folder or Hub repository of the model that translates.
        inputs: files of text, one sentence a line (.gz too).
        output: a file whose name ends in .tsv.
        generates: the side of the pairs that the model writes.
        options: of the search.
        engine: what computes it.
        chunk: lines that are sorted, translated and saved together.
        cluster: the Dask cluster whose workers translate, see [`Cluster`]; None to do it here.

    Returns:
        The counts of the filters, which the first process has; nothing in the others.

    Raises:
        ValueError: the backend cannot do what was asked of it.
    """
    processes = PartialState().num_processes
    if processes > 1 and cluster is not None:
        raise ValueError("--cluster: one process gives the work to all workers; start a single one")
    if processes > 1 and engine.backend != "torch":
        raise ValueError("--backend ctranslate2: uses all cores in one process; start a single one")
    folder = local_folder(model)

    load = partial(_load, folder, options, engine)
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    with nullcontext() if cluster is None else Cluster(cluster, [folder]) as workers:
        return synthesize(
            load,
            inputs,
            output,
            generates=generates,
            settings={"model": fingerprint(folder)[:16], "generates": generates}
            | options.settings()
            | engine.settings(),
            filters=filters,
            chunk_size=chunk,
            progress=True,
            translating=here if workers is None else workers.in_order,
        )


def _load(folder: Path, options: SearchOptions, engine: Engine) -> Callable[[list[str]], list[str]]:
    """What translates lines on the device of the process that calls this."""
    translator = Translator.from_pretrained(folder, device=PartialState().device, options=options, **asdict(engine))
    return noting(translator, partial(translate_whole, translator))
