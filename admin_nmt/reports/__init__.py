"""Tables, comparison pages and the analysis of depth."""
