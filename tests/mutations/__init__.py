"""Edits of captured bundles that a reader is to be fooled by, each sealed again as a forger would seal it."""
