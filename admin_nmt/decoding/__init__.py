"""From a trained model to text: beam search, sampling, scoring, whole files, synthetic corpora."""
