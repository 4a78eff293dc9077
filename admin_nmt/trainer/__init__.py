"""`Seq2SeqTrainer` for very deep models, and what belongs to a training: arguments, checkpoints, FSDP, evaluation."""
