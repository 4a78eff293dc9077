"""Work on several machines."""
