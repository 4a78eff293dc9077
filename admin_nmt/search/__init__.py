"""Search and sampling of target ids: what every translation goes through, whoever asks for it."""
