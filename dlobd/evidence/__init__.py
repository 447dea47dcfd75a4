"""Evidence of a run: a bundle in, typed facts out. `dlobd.timeline` knows the meaning of the facts."""
