"""A recipe for somebody's own text: its contents, the held-out pairs, the sizes that suit it and the machine."""
