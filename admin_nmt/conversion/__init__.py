"""Checkpoints of fairseq and its forks as models of this package."""
