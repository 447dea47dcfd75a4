"""Views of a run: data in, text or a picture out. Nothing here reads a run's files or computes a number anew."""
