"""Search on token ids: beam search, n-best lists, ensembles, constraints, sampling, forced decoding."""
