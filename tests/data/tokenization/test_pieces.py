"""Spelling of pieces, on which words, alignments and forbidden texts rest."""

from toy import toy_tokenizer

from admin_nmt.data.tokenization.fairseq_tokenizer import FairseqTokenizer
from admin_nmt.data.tokenization.pieces import capitalised_too, piece_texts, spelt_words, word_numbers, words_go_on
from admin_nmt.data.tokenization.tokenizer_folder import tokenizer_digest


def test_texts_of_byte_level_pieces_are_the_text_and_words_what_spaces_separate(tokenizer):
    for text in ("Ba do,  kitu.", "  ba", "Mutu. (renk) 12"):
        texts = piece_texts(tokenizer, tokenizer(text)["input_ids"])
        numbers = word_numbers(texts)
        assert "".join(texts) == " " + text and texts[-1] == ""  # the end of sentence
        assert max(number for number in numbers if number is not None) + 1 == len(text.split())
        assert numbers[-1] is None
    assert word_numbers(["Ha", "us ", "und ", ". "]) == [0, 0, 1, 2]
    assert word_numbers([]) == []


def test_a_word_goes_on_behind_letters_alone(tokenizer):
    go_on, ids = words_go_on(tokenizer), tokenizer("do. ")["input_ids"]
    assert go_on[ids[0]]
    assert not any(go_on[token] for token in ids[-3:])  # the full stop, the space and the end of sentence
    assert spelt_words(tokenizer, "ba do") == [" ba do", "ba do"]


def test_the_first_letter_may_be_a_capital():
    assert capitalised_too(" am  Tag") == ["Am Tag", "am Tag"]
    assert capitalised_too("Haus") == ["Haus"]


def test_digests_are_those_of_the_same_pieces_and_merges(tokenizer):
    tokenizer(["a", "b c"], padding=True, truncation=True)
    assert tokenizer_digest(tokenizer) == tokenizer_digest(toy_tokenizer())
    assert tokenizer_digest(tokenizer) != tokenizer_digest(toy_tokenizer(seed=1))


def test_pieces_of_fairseq_end_their_words(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\na b\nab c</w>\n")
    (tmp_path / "dict.txt").write_text("ab@@ 9\nabc 8\nc@@ 7\nd 6\nb 5\na@@ 4\n")
    tokenizer = FairseqTokenizer(str(tmp_path / "dict.txt"), str(tmp_path / "codes"))
    ids = tokenizer("abd abc")["input_ids"]
    assert piece_texts(tokenizer, ids) == ["ab", "d ", "abc ", ""]
    assert spelt_words(tokenizer, "abd abc") == ["abd abc "]
    go_on = words_go_on(tokenizer)
    assert [go_on[token] for token in ids] == [True, False, False, False]
    lower = FairseqTokenizer(*tokenizer.files, lowercase=True)
    assert tokenizer_digest(tokenizer) != tokenizer_digest(lower)
    (tmp_path / "codes").write_text("#version: 0.2\nb a\nab c</w>\n")
    other = FairseqTokenizer(str(tmp_path / "dict.txt"), str(tmp_path / "codes"))
    assert tokenizer_digest(tokenizer) != tokenizer_digest(other)
