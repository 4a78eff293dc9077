"""Checkpoints of fairseq and its forks as models of this package."""

from .fairseq_weights import ConversionError, convert_fairseq

__all__ = ["ConversionError", "convert_fairseq"]
