"""Model folders and repositories: finding, checking, loading and publishing them."""
