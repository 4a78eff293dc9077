"""Forty minutes of a GPU: steps that check and measure on it, cut into calls of a few minutes."""
