"""CTranslate2 as the engine of a translation: models are converted once, by its own stock converter, and kept.

The search is that of `search_ids`, made with CTranslate2's parameters. Two differences remain, both of its own:

* Where a search forbids the end of sentence (before `min_new_tokens`), CTranslate2 takes it out before the softmax, so
  the probabilities of the others grow, and a hypothesis's score with them. transformers and fairseq do so afterwards.
* A translation that reaches its limit is scored without an end of sentence; here its end is scored too.
"""

import json
import logging
import math
import operator
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from filelock import FileLock
from huggingface_hub import constants
from safetensors import safe_open
from transformers import PreTrainedConfig

from ..data.batching import generation_batches
from ..data.checksums import discard, folder_is_whole, write_checksums
from ..data.tokenization.tokenizer_folder import load_tokenizers
from ..hub.model_folder import (
    check_weights,
    fingerprint,
    generation_defaults,
    load_admin_model,
    load_model,
    read_config,
)
from ..system.devices import cpu_or_gpu
from ..system.errors import refusing_code
from ..system.files import new_folder
from ..system.terminal import progress_bar
from ..weights.exporting import ExportError, export_standard
from .search.beam_search import ScoredIds, check_finite
from .search.generation import generate_ids
from .search.search_settings import SearchSettings, generation_config, length_limits, search_settings, unknown_setting

logger = logging.getLogger(__name__)

CACHE = Path(constants.HF_HOME) / "admin_nmt" / "ctranslate2"
STOCK_TYPES = ("marian", "pegasus")
# Arguments of `search_ids` without a counterpart here, and what a user calls them.
REFUSED = {"sampling": "sampling", "prefixes": "target prefix", "processors": "forbidden text"}
# d_model from which the threads share a batch; with narrower models they mostly wait for each other. At 128 (4-4
# layers, beam 5, two threads) a batch on each was 1.4 times as fast in float32 and 1.55 times in int8. Where between it
# turns was not measured.
WIDE = 512
NO_PENALTY = 1e-9  # length to this power is 1 in float32, but with 0 CTranslate2 would stop by another rule


class CTranslate2Model:
    """A model folder as CTranslate2 runs it, with the interface that `Translator` needs.

    Args:
        folder: a stock Marian or Pegasus model, or one trained here that can be folded into such a model.
        compute_type: "float32" gives what transformers gives; "int8" is faster, and rounds; "auto" is the fastest that
            the device has. Weights are stored in float32 and rounded when they are loaded.
        device: where to run; by default a GPU if CTranslate2 sees one.

    Raises:
        ValueError: the model cannot run in CTranslate2, or the device is not there or does not know `compute_type`.
        ImportError: ctranslate2 is not installed.
    """

    def __init__(
        self, folder: str | Path, *, compute_type: str = "float32", device: str | torch.device | None = None
    ) -> None:
        ctranslate2 = _library()
        folder = Path(folder).absolute()
        self.folder, self.compute_type = folder, compute_type
        self.config = read_config(folder)
        self.generation_config = generation_defaults(folder, self.config)
        self.device = cpu_or_gpu(device, ctranslate2.get_cuda_device_count())
        self.converted = converted_folder(folder, self.config)
        # As many threads as torch takes: CTranslate2's own choice does not know of torch.set_num_threads.
        self.inter_threads, intra_threads = thread_layout(
            self.config.d_model, self.device.type, torch.get_num_threads()
        )
        self.model = ctranslate2.Translator(
            str(self.converted),
            device=self.device.type,
            device_index=self.device.index or 0,
            compute_type=compute_type,
            inter_threads=self.inter_threads,
            intra_threads=intra_threads,
        )
        self.pieces: list[str] = json.loads((self.converted / "shared_vocabulary.json").read_text(encoding="utf-8"))
        self.ids = {piece: index for index, piece in enumerate(self.pieces)}

    def __reduce__(self) -> tuple:
        """A pickle holds no weights: they are loaded again from the folder."""
        return partial(CTranslate2Model, compute_type=self.compute_type, device=self.device), (self.folder,)

    def search_ids(
        self,
        sequences: Sequence[Sequence[int]],
        *,
        nbest: int = 1,
        batch_tokens: int = 4096,
        progress: bool = False,
        **options: Any,
    ) -> list[list[ScoredIds]]:
        """Translates token ids; arguments and result are those of [`admin_nmt.decoding.search.generation.search_ids`].

        Raises:
            ValueError: an option has no counterpart in CTranslate2.
        """
        for name, what in REFUSED.items():
            if options.pop(name, None):
                raise ValueError(f"{what}: CTranslate2 cannot search with this setting; leave it out, or use torch")
        pad = self.config.pad_token_id
        config = generation_config(self.generation_config, pad, options, nbest)
        settings = search_settings(config, self.config)
        unknown = unknown_setting(config) or _impossible(settings, self.config)
        if unknown is not None:
            raise ValueError(f"{unknown}: CTranslate2 cannot search with this setting; leave it out, or use torch")
        lengths = torch.tensor([len(sequence) for sequence in sequences], dtype=torch.long)
        limits = length_limits(lengths, config, self.config).tolist()
        batches = [batch.tolist() for batch in generation_batches(lengths.numpy(), batch_tokens)]
        outputs: list[list[ScoredIds]] = [[] for _ in sequences]

        def search(batch: list[int]) -> list[list[ScoredIds]]:
            rows = [[self.pieces[token] for token in sequences[index]] for index in batch]
            return self._search(rows, [limits[index] for index in batch], settings)

        # More threads than CTranslate2 has searches at a time, so that the next batch is there when one ends.
        with (
            progress_bar(total=len(sequences), desc="translating", unit="sentence", shown=progress) as bar,
            ThreadPoolExecutor(2 * self.inter_threads) as pool,
        ):
            for batch, found in zip(batches, pool.map(search, batches), strict=True):
                for index, hypotheses in zip(batch, found, strict=True):
                    outputs[index] = hypotheses
                bar.update(len(batch))
        return outputs

    def _search(self, rows: list[list[str]], limits: list[int], settings: SearchSettings) -> list[list[ScoredIds]]:
        """The best hypotheses of some sentences, without their end.

        CTranslate2 has one limit for a batch: a sentence that went beyond its own is searched again with that one.
        """
        longest = max(limits)
        results = self.model.translate_batch(
            rows,
            beam_size=settings.num_beams,
            num_hypotheses=settings.num_beams,
            length_penalty=settings.length_penalty or NO_PENALTY,
            min_decoding_length=min(settings.min_new_tokens, longest),
            max_decoding_length=longest + 1,
            return_end_token=True,  # its length counts then, as it does in transformers
            max_input_length=0,
            return_scores=True,
        )
        check_finite(all(map(math.isfinite, chain(*(result.scores for result in results)))), self.config)
        end, found = self.pieces[settings.eos[0]], []
        for row, limit, result in zip(rows, limits, results, strict=True):
            lengths = [len(tokens) - (tokens[-1] == end) for tokens in result.hypotheses]
            if max(lengths) > limit and limit < longest:
                found += self._search([row], [limit], settings)
            else:
                best = zip(result.hypotheses, lengths, result.scores, strict=True)
                scored = [self._scored(tokens, min(limit, n), score, settings) for tokens, n, score in best]
                found.append(scored[: settings.nbest])
        return found

    def _scored(self, tokens: list[str], kept: int, score: float, settings: SearchSettings) -> ScoredIds:
        """The first `kept` tokens of a hypothesis, whose `score` is over all of them."""
        ids = [self.ids[token] for token in tokens[:kept]]
        return ScoredIds(ids, score, score * len(tokens) ** settings.length_penalty)


def thread_layout(d_model: int, device: str, threads: int) -> tuple[int, int]:
    """Batches that are searched at a time, and the threads of each, for a model of this width."""
    return (threads, 1) if device == "cpu" and d_model < WIDE else (1, threads)


def _library() -> ModuleType:
    try:
        import ctranslate2
    except ImportError as error:
        raise ImportError("backend 'ctranslate2' needs its package: pip install ctranslate2") from error
    return ctranslate2


def _impossible(settings: SearchSettings, config: PreTrainedConfig) -> str | None:
    """Name of a setting that CTranslate2's search lacks, if there is one."""
    if settings.eos != [config.eos_token_id]:
        return "eos_token_id"
    if settings.start != config.decoder_start_token_id:
        return "decoder_start_token_id"
    if settings.processors:
        return "bad_words_ids"
    return None if settings.suppressed == [config.pad_token_id] else "suppress_tokens"


def converted_folder(folder: Path, config: PreTrainedConfig) -> Path:
    """The CTranslate2 model of a folder, converted at the first call and then found by the folder's content.

    One that is damaged is converted again.

    Raises:
        ValueError: the model has no counterpart in CTranslate2, or weights that are not finite.
    """
    _check_kind(folder, config)
    ctranslate2 = _library()
    target = CACHE / f"{fingerprint(folder)[:32]}-{ctranslate2.__version__}"
    if folder_is_whole(target):
        return target
    with FileLock(f"{CACHE}.lock"):
        if not folder_is_whole(target):  # else another process was faster
            discard(target)
            logger.info("converting %s for CTranslate2, once", folder)
            with _stock_folder(folder, config) as stock, new_folder(target) as temporary, refusing_code(folder):
                ctranslate2.converters.TransformersConverter(str(stock)).convert(str(temporary), force=True)
                write_checksums(temporary)
    return target


def export_ctranslate2(folder: Path, target: Path, quantization: str | None = None) -> float:
    """Write the folder that CTranslate2 runs without this package, with the tokenizer, and check what was written.

    Some random sentences are translated greedily by the stock model and by CTranslate2, and compared token by token.

    Args:
        folder: as [`CTranslate2Model`] takes it.
        target: must not exist, or be empty.
        quantization: how the weights are stored, such as int8; by default float32.

    Returns:
        The share of the sentences whose translations are the same.

    Raises:
        ValueError: the model cannot run in CTranslate2, the quantization is unknown, or `target` is not empty.
        ExportError: in float32 a translation is another one; nothing is left behind.
        ImportError: ctranslate2 is not installed.
    """
    ctranslate2, config = _library(), read_config(folder)
    _check_kind(folder, config)
    known = ctranslate2.specs.model_spec.ACCEPTED_MODEL_TYPES
    if quantization is not None and quantization not in known:
        raise ValueError(f"quantization: {quantization!r} is not one of {', '.join(known)}")
    with _stock_folder(folder, config) as stock, new_folder(target) as temporary:
        with refusing_code(folder):
            converter = ctranslate2.converters.TransformersConverter(str(stock))
            converter.convert(str(temporary), quantization=quantization, force=True)
        tokenizer, _ = load_tokenizers(stock)
        tokenizer.save_pretrained(temporary)
        same = _same_translations(stock, temporary)
        if same < 1 and quantization in (None, "float32"):
            raise ExportError(f"CTranslate2 translates {1 - same:.0%} of random sentences unlike the stock model")
    return same


def _same_translations(stock: Path, converted: Path, sentences: int = 20) -> float:
    """The share of random sentences that both translate greedily into the same tokens."""
    model, generator = load_model(stock, dtype=torch.float32), torch.Generator().manual_seed(0)
    # Of its positions a search here leaves one free.
    pad, length = model.config.pad_token_id, min(12, model.config.max_position_embeddings - 1)
    rows = torch.randint(2, pad, (sentences, length - 1), generator=generator).tolist()
    rows = [[*row, model.config.eos_token_id] for row in rows]
    ours = generate_ids(model, rows, num_beams=1, length_penalty=1.0, max_new_tokens=length)
    pieces = json.loads((converted / "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids, engine = {piece: index for index, piece in enumerate(pieces)}, _library().Translator(str(converted))
    texts = [[pieces[token] for token in row] for row in rows]
    results = engine.translate_batch(texts, beam_size=1, max_decoding_length=length, return_end_token=True)
    theirs = [[ids[token] for token in result.hypotheses[0]] for result in results]
    ended = [row[:-1] if row[-1:] == [model.config.eos_token_id] else row for row in theirs]
    return sum(map(operator.eq, ours, ended)) / sentences


def _check_kind(folder: Path, config: PreTrainedConfig) -> None:
    """Raises ValueError where no stock model that CTranslate2 converts computes the same."""
    if not getattr(config, "share_encoder_decoder_embeddings", True):
        raise ValueError(f"{folder}: has two vocabularies, but CTranslate2's converter knows one; use backend='torch'")
    if config.model_type not in ("admin", *STOCK_TYPES):
        raise ValueError(f"{folder}: is a {config.model_type} model; CTranslate2 is used for {', '.join(STOCK_TYPES)}")


@contextmanager
def _stock_folder(folder: Path, config: PreTrainedConfig) -> Iterator[Path]:
    """A checked folder that CTranslate2's converter reads: the same, or while the context is open an exported one."""
    for path in sorted(folder.glob("*.safetensors")):  # CTranslate2's scores can be finite where weights are not
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no mapping)
                if not file.get_tensor(name).isfinite().all():
                    raise ValueError(f"{path}: {name} is not finite (NaN or infinite); copy or train the model again")
    check_weights(folder, config)
    # It refuses those that need code of their own, about which the converter would ask.
    tokenizer, _ = load_tokenizers(folder)
    if config.model_type in STOCK_TYPES:
        yield folder
        return
    with TemporaryDirectory() as temporary:
        target = Path(temporary) / "stock"
        try:
            export_standard(load_admin_model(folder), tokenizer, target)
        except ValueError as error:
            raise ValueError(f"{folder}: cannot run in CTranslate2: {error}") from error
        yield target
