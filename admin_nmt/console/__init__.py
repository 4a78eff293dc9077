"""What a person sees of long work: lines that stay, bars that go, and the table of a training run."""
