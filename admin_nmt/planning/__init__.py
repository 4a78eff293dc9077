"""A recipe for text of one's own: what is in the files, what is held out, and which sizes and settings suit it."""
