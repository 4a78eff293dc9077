"""Variances, gradients and amplification by layer: why deep post-LN models fail."""
