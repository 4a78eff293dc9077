"""From a trained model to text: translation, scoring, whole files, synthetic corpora."""
