"""A checkpoint file of fairseq with its dictionaries and BPE codes becomes a model folder that translates text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from ..data.tokenization.fairseq_tokenizer import FairseqTokenizer
from ..data.tokenization.tokenizer_folder import save_tokenizers
from ..model.configuration_admin import AdminConfig
from ..system.files import new_folder
from .fairseq_file import read_checkpoint
from .fairseq_weights import EOS, PAD, ConversionError, convert_fairseq

MAX_LEN_A, MAX_LEN_B = 0, 200  # fairseq-generate's: most tokens of a translation, a times those of the source plus b


def convert_checkpoint(
    checkpoint: str | Path,
    *,
    dicts: Sequence[str | Path],
    bpe_codes: str | Path | Sequence[str | Path],
    output: str | Path,
    moses: Mapping[str, Any] | None = None,
    lowercase: bool = False,
    length_penalty: float = 1.0,
) -> None:
    """Write the model folder of a checkpoint: configuration, weights, tokenizers, and fairseq-generate's beam search.

    The folder appears when it is complete. Its models compute what fairseq's did: `Translator.from_pretrained(output)`
    translates text as `fairseq-generate --beam 5` did, after the same preparation.

    Args:
        checkpoint: the file fairseq wrote, or the average of several; nothing it names is run.
        dicts: dict.txt of source and target, or the joined one alone.
        bpe_codes: the codes of subword-nmt that both sides share, or those of source and target.
        output: a folder that does not exist yet, or is empty.
        moses: how the text was prepared before BPE: `source` and `target` language and the settings of
            [`FairseqTokenizer`]; None for text that is tokenised already.
        lowercase: whether it was lower-cased.
        length_penalty: fairseq-generate's `--lenpen`.

    Raises:
        CheckpointFileError: the file is no checkpoint, is damaged, or would run code when unpickled.
        ConversionError: its keys, settings or dictionaries do not fit.
        ValueError, OSError: a dictionary or the codes are damaged or missing, or `output` is not empty.
    """
    codes = [bpe_codes] if isinstance(bpe_codes, str | Path) else list(bpe_codes)
    source, target = _tokenizers(dicts, codes, moses, lowercase)
    state, args = read_checkpoint(checkpoint)
    try:
        model = convert_fairseq(state, args)
    except ConversionError as error:
        raise ConversionError(f"{checkpoint}: {error}") from error
    _check_dictionaries(model.config, source, target, dicts)
    source.model_max_length = target.model_max_length = model.config.max_position_embeddings
    model.generation_config = _search(model.config, length_penalty)
    with new_folder(output) as folder:
        model.save_pretrained(folder)
        save_tokenizers(folder, source, target)


def _tokenizers(
    dicts: Sequence[str | Path], codes: Sequence[str | Path], moses: Mapping[str, Any] | None, lowercase: bool
) -> tuple[FairseqTokenizer, FairseqTokenizer]:
    """Tokenizers of source and target, one object where nothing distinguishes them."""
    for name, files in (("dicts", dicts), ("bpe_codes", codes)):
        if len(files) not in (1, 2):
            raise ValueError(f"{name}: {len(files)} files; give one that both sides share, or source and target")
    source = FairseqTokenizer(str(dicts[0]), str(codes[0]), moses=moses, lowercase=lowercase)
    if not moses and len(dicts) == len(codes) == 1:
        return source, source
    both = {**moses, "source": moses["target"]} if moses else None  # it encodes the target language too
    return source, FairseqTokenizer(str(dicts[-1]), str(codes[-1]), moses=both, lowercase=lowercase)


def _search(config: AdminConfig, length_penalty: float) -> GenerationConfig:
    """The beam search of `fairseq-generate --beam 5`."""
    return GenerationConfig(
        num_beams=5,
        early_stopping=True,
        length_penalty=length_penalty,
        min_new_tokens=1,
        max_length=min(MAX_LEN_B + 1, config.max_position_embeddings),  # with the start
        length_limit=[MAX_LEN_A, MAX_LEN_B],
        suppress_tokens=[PAD],
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
    )


def _check_dictionaries(
    config: AdminConfig, source: FairseqTokenizer, target: FairseqTokenizer, dicts: Sequence[str | Path]
) -> None:
    sides = ((source, config.vocab_size, dicts[0]), (target, config.decoder_vocab_size, dicts[-1]))
    for tokenizer, rows, path in sides:
        if len(tokenizer) != rows:
            raise ConversionError(
                f"{path}: its {len(tokenizer) - 4} symbols and 4 special ones are not the {rows} rows of the "
                "checkpoint's embedding; give the dictionary from the data folder that it was trained on"
            )
    if config.share_encoder_decoder_embeddings and source.symbols != target.symbols:
        raise ConversionError(
            f"{dicts[-1]}: differs from {dicts[0]}, but the checkpoint shares its embeddings; give the joined one"
        )


__all__ = ["convert_checkpoint"]
