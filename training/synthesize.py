"""Make synthetic training pairs: translate text with a trained model and filter what comes out.

Back-translation: a model of the reverse direction draws sources for text of the target language.

    python training/synthesize.py runs/multi30k-de-en-short/standard --input mono.de.gz --generates source \\
        --method sampling --output runs/back-translated.tsv

Sequence-level distillation: the teacher's best translations of the sources that it was trained on.

    python training/synthesize.py runs/teacher/standard --input train.en.gz --generates target \\
        --output runs/distilled.tsv

The output is a TSV file, source and target, that a recipe takes as a corpus. A line of more tokens than the model has
positions is left out, for its translation would be that of its head. Killed, the same command goes on behind the
finished lines, on any number of processes:

    accelerate launch --config_file training/accelerate/ddp.yaml --num_processes 2 training/synthesize.py ...
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import transformers
from accelerate import PartialState
from datasets import disable_progress_bars

from admin_nmt import Translator
from admin_nmt.data.cleaning import CleaningOptions, format_counts
from admin_nmt.decoding.sampling import Sampling
from admin_nmt.decoding.synthesis import synthesize, translate_whole
from admin_nmt.distributed import say, start_processes
from admin_nmt.model_folder import fingerprint, local_folder
from cli import parse, run


@dataclass
class Arguments:
    model: str = field(metadata={"help": "Folder or Hub repository of the model that translates."})
    input: list[str] = field(metadata={"help": "Files of text, one sentence a line (.gz too)."})
    output: str = field(metadata={"help": "File to write, .tsv: source, tab, target."})
    generates: Literal["source", "target"] = field(metadata={"help": "Side of the pairs that the model writes."})
    method: Literal["beam", "sampling"] = field(
        default="beam", metadata={"help": "Search for the best translation, or draw one from the distribution."}
    )
    num_beams: int = field(default=5, metadata={"help": "Beam size; 1 is greedy search."})
    length_penalty: float | None = field(default=None, metadata={"help": "Of the beam; default: the model's own."})
    top_k: int | None = field(default=None, metadata={"help": "Draw among so many tokens; default: among all."})
    temperature: float = field(default=1.0, metadata={"help": "What logits are divided by before drawing."})
    seed: int = field(default=1, metadata={"help": "Of the drawing; another one gives other translations."})
    max_words: int | None = field(default=250, metadata={"help": "Drop pairs with a side of more words."})
    max_ratio: float = field(default=1.5, metadata={"help": "Drop pairs of more unequal numbers of words; 0 for none."})
    chunk: int = field(default=2000, metadata={"help": "Lines that are sorted, translated and saved together."})
    max_tokens: int = field(default=4096, metadata={"help": "Source positions of a batch, padding included."})
    backend: Literal["torch", "ctranslate2"] = field(default="torch", metadata={"help": "What runs a beam search."})
    compute_type: str | None = field(default=None, metadata={"help": "For CTranslate2: int8, ...; default: float32."})


def search_options(args: Arguments) -> dict[str, Any]:
    """What the translations depend on besides model and text."""
    if args.method == "beam":
        engine = {"backend": args.backend, "compute_type": args.compute_type}
        return {"num_beams": args.num_beams, "length_penalty": args.length_penalty} | engine
    if args.backend != "torch":
        raise ValueError("--backend ctranslate2: cannot draw reproducibly; leave it out, or give --method beam")
    return {"sampling": Sampling(args.seed, args.top_k, args.temperature)}


def main() -> None:
    args = parse(Arguments, __doc__)
    if not args.output.endswith(".tsv"):
        raise ValueError(f"--output {args.output}: give a name that ends in .tsv, as recipes know such files")
    if args.chunk < 1:
        raise ValueError(f"--chunk {args.chunk}: give at least 1")
    options = search_options(args)
    filters = CleaningOptions(max_words=args.max_words, max_ratio=args.max_ratio or None, drop_held_out=None)
    start_processes()
    device, processes = PartialState().device, PartialState().num_processes
    if processes > 1 and args.backend != "torch":
        raise ValueError("--backend ctranslate2: uses all cores in one process; start a single one")
    folder = local_folder(args.model)
    transformers.logging.disable_progress_bar()
    disable_progress_bars()

    def load() -> Callable[[list[str]], list[str]]:
        translator = Translator.from_pretrained(folder, device=device, max_tokens=args.max_tokens, **options)
        return partial(translate_whole, translator)

    shown = {name: asdict(value) if name == "sampling" else value for name, value in options.items()}
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    counts = synthesize(
        load,
        args.input,
        args.output,
        generates=args.generates,
        settings={"model": fingerprint(folder)[:16], "generates": args.generates} | shown,
        filters=filters,
        chunk_size=args.chunk,
        progress=True,
    )
    if counts:  # the first process has them
        say(f"{format_counts(counts)}\n{args.output}")


if __name__ == "__main__":
    run(main)
