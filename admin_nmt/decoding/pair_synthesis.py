"""Synthetic training pairs from a trained model, on as many processes as were launched."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

from accelerate import PartialState

from ..data.cleaning import CleaningOptions
from ..data.dask_cluster import Cluster
from ..hub.model_folder import fingerprint, local_folder
from .search.sampling import Sampling
from .synthesis import here, synthesize, translate_whole
from .translator import Translator
from .usual_scores import noting


def search_options(
    method: str,
    *,
    num_beams: int = 5,
    length_penalty: float | None = None,
    seed: int = 1,
    top_k: int | None = None,
    temperature: float = 1.0,
    backend: str = "torch",
    compute_type: str | None = None,
    dtype: str | None = None,
) -> dict[str, Any]:
    """What the translations depend on besides model and text: of the beam, or of `sampling`.

    Raises:
        ValueError: the backend cannot do that.
    """
    if dtype is None and method == "sampling":
        dtype = "float32"  # what is drawn is the same on every machine
    precision = {} if dtype is None else {"dtype": dtype}
    if method == "beam":
        engine = {"backend": backend, "compute_type": compute_type}
        return {"num_beams": num_beams, "length_penalty": length_penalty} | engine | precision
    if backend != "torch":
        raise ValueError("--backend ctranslate2: cannot draw reproducibly; leave it out, or give --method beam")
    return {"sampling": Sampling(seed, top_k, temperature)} | precision


def write_synthetic_pairs(
    model: str,
    inputs: list[str],
    output: str,
    generates: Literal["source", "target"],
    options: dict[str, Any],
    *,
    filters: CleaningOptions,
    chunk: int = 2000,
    max_tokens: int = 4096,
    cluster: str | None = None,
) -> dict[str, int]:
    """Translate files with a model and leave the pairs that pass the filters in a TSV file, source and target.

    Killed, the same call continues after the finished lines, on any number of processes, each of which makes it.

    Args:
        model: folder or Hub repository of the model that translates.
        inputs: files of text, one sentence a line (.gz too).
        output: a file whose name ends in .tsv.
        generates: the side of the pairs that the model writes.
        options: of the search, by `search_options`.
        chunk: lines that are sorted, translated and saved together.
        max_tokens: source positions of a batch, padding included.
        cluster: the Dask cluster whose workers translate, see [`Cluster`]; None to do it here.

    Returns:
        The counts of the filters, which the first process has; nothing in the others.

    Raises:
        ValueError: the backend cannot do what was asked of it.
    """
    processes = PartialState().num_processes
    if processes > 1 and cluster is not None:
        raise ValueError("--cluster: one process gives the work to all workers; start a single one")
    if processes > 1 and options.get("backend", "torch") != "torch":
        raise ValueError("--backend ctranslate2: uses all cores in one process; start a single one")
    folder = local_folder(model)

    load = partial(_load, folder, max_tokens, options)
    shown = {name: asdict(value) if name == "sampling" else value for name, value in options.items()}
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    with nullcontext() if cluster is None else Cluster(cluster, [folder]) as workers:
        return synthesize(
            load,
            inputs,
            output,
            generates=generates,
            settings={"model": fingerprint(folder)[:16], "generates": generates} | shown,
            filters=filters,
            chunk_size=chunk,
            progress=True,
            translating=here if workers is None else workers.in_order,
        )


def _load(folder: Path, max_tokens: int, options: dict[str, Any]) -> Callable[[list[str]], list[str]]:
    """What translates lines on the device of the process that calls this."""
    device = PartialState().device
    translator = Translator.from_pretrained(folder, device=device, max_tokens=max_tokens, **options)
    return noting(translator, partial(translate_whole, translator))
