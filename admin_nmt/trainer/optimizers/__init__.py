"""Optimizers in forms that torch does not have."""
