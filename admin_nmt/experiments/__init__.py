"""Grids of runs, comparison of systems, tables and pictures, and the analysis of depth."""
