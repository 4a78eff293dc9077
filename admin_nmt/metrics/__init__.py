"""Translation quality: BLEU, chrF, TER, METEOR, COMET, and systems compared."""
