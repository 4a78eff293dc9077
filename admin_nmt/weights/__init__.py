"""Operations on a model's weights: profiling, folding, exporting, averaging, importing checkpoints of fairseq."""
