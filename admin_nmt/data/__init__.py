"""From corpora to batches: reading, cleaning, mixing, tokenising in a memory-mapped cache, token batches."""
