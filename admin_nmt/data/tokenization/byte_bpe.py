"""Byte-level BPE in Marian's layout of ids: `</s>` 0, `<unk>` 1, the pieces, and `<pad>` last.

The tokenizers are stock `PreTrainedTokenizerFast` objects, which `AutoTokenizer.from_pretrained` loads without this
package.
"""

import json
from collections.abc import Iterable, Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ...system.terminal import progress_bar

EOS, UNK, PAD = "</s>", "<unk>", "<pad>"
SMALLEST_VOCABULARY = len(pre_tokenizers.ByteLevel.alphabet()) + len((EOS, UNK, PAD))

# A piece stays inside a word, with the space before it. Marks belong to the letters they modify. A digit stands alone,
# so that the model sees the decimal positions of every number. As no piece mixes letters and punctuation, none can be
# spelt like a special token, whose id it would take.
WORDS = Regex(r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+")


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    max_length: int = 1024,
    tags: Sequence[str] = (),
) -> PreTrainedTokenizerFast:
    """Trains one BPE on texts; for a joint vocabulary, chain the lines of both languages.

    Encoding loses nothing: `decode(encode(text), skip_special_tokens=True) == text` for every Unicode string. A string
    with a lone surrogate is not Unicode text, and the tokenizer refuses it.

    Args:
        texts: lines of text, read once; only the counts of their words are kept in memory.
        vocab_size: number of ids, special tokens included. A small corpus can yield fewer: `len(tokenizer)` is exact.
        max_length: longest encoding in tokens, `</s>` included, to which `truncation=True` cuts.
        tags: tokens besides, such as <bt>, which mark a sentence as a whole; no text contains them.

    Raises:
        ValueError: vocab_size has no room for the 256 bytes, the special tokens and the tags.
    """
    smallest = SMALLEST_VOCABULARY + len(tags)
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size is {vocab_size}, but 256 bytes and {smallest - 256} special tokens need at least {smallest}."
        )
    trainer = BpeTrainer(
        vocab_size=vocab_size - 1,  # <pad> follows the trained pieces
        special_tokens=[EOS, UNK, *tags],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,  # its bars stay on the screen
    )
    backend = pipeline(BPE())
    backend.train_from_iterator(progress_bar(texts, desc="vocabulary", unit="line", unit_scale=True), trainer)
    return _as_fast(_with_special_tokens(backend, tags), tags, max_length)


def with_tags(tokenizer: PreTrainedTokenizerBase, tags: Sequence[str]) -> PreTrainedTokenizerBase:
    """A tokenizer of `train_tokenizer` with tags besides, in front of `<pad>`; the pieces before keep their ids.

    Raises:
        ValueError: the tokenizer lacks a tag and is of another origin.
    """
    missing = [tag for tag in tags if tag not in tokenizer.get_vocab()]
    if not missing:
        return tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or tokenizer.convert_tokens_to_ids([EOS, UNK]) != [0, 1]:
        raise ValueError(
            f"the tag {missing[0]} is not in the vocabulary, which is not a byte-level BPE of admin_nmt and cannot be "
            "extended: train a new one"
        )
    pieces = _pieces(tokenizer)
    pieces[tokenizer.pad_token_id : tokenizer.pad_token_id] = missing
    return _renumbered(tokenizer, pieces, [*_tags(tokenizer), *missing])


def with_pad_at(tokenizer: PreTrainedTokenizerFast, pad: int) -> PreTrainedTokenizerFast:
    """A tokenizer of `train_tokenizer` with `<pad>` at another id; the pieces from there on move up."""
    if tokenizer.pad_token_id == pad:
        return tokenizer
    pieces = _pieces(tokenizer)
    pieces.remove(PAD)
    pieces.insert(pad, PAD)
    return _renumbered(tokenizer, pieces, _tags(tokenizer))


def _pieces(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """The whole vocabulary in the order of its ids."""
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _tags(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    return [token for token in tokenizer.all_special_tokens if token not in (EOS, UNK, PAD)]


def _renumbered(tokenizer: PreTrainedTokenizerFast, pieces: list[str], tags: list[str]) -> PreTrainedTokenizerFast:
    """Tokenizer with other ids, in the order of `pieces`."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    backend = Tokenizer(BPE(vocab=vocabulary, merges=[tuple(merge) for merge in model["merges"]]))
    return _as_fast(_with_special_tokens(backend, tags), tags, tokenizer.model_max_length)


def _as_fast(backend: Tokenizer, tags: Sequence[str], max_length: int) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=EOS,
        unk_token=UNK,
        pad_token=PAD,
        extra_special_tokens=list(tags),
        padding_side="right",
        truncation_side="right",
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        split_special_tokens=True,  # "</s>" inside a text is five characters, not the end of the sentence
        clean_up_tokenization_spaces=False,
    )


def pipeline(model: BPE) -> Tokenizer:
    """Backend with all that the tokenizers of this module do before and after BPE."""
    backend = Tokenizer(model)
    # The first word of a text shares its pieces with the same word elsewhere: every text gets one space in front, also
    # one that begins with a space (ByteLevel's own add_prefix_space would skip that one), and decoding takes one away.
    backend.normalizer = normalizers.Prepend(" ")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(WORDS, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", left=1, right=0)])
    return backend


def _with_special_tokens(trained: Tokenizer, tags: Sequence[str]) -> Tokenizer:
    """The trained tokenizer with `<pad>` in the model's own vocabulary, as last id, and `</s>` after every text."""
    model = json.loads(trained.to_str())["model"]
    vocabulary = {PAD: len(model["vocab"])} | model["vocab"]
    backend = pipeline(BPE(vocab=vocabulary, merges=[tuple(merge) for merge in model["merges"]]))
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in (EOS, UNK, *tags, PAD)])
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, vocabulary[EOS])]
    )
    return backend
