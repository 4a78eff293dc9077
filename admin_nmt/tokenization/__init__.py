"""Tokenizers: byte-level BPE in Marian's layout of ids, and that of fairseq's checkpoints."""
