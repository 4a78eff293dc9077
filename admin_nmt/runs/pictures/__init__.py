"""The pictures of a run and its card: training curves and ω."""
