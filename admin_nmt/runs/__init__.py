"""One run, from a recipe to its model card."""
