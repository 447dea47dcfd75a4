"""Models: what is trained."""
