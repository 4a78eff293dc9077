"""Byte-level BPE, the tokenizer of imported fairseq checkpoints, and the preparation of text as the papers did it."""
