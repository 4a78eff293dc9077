"""Pictures, drawn from plain numbers."""
