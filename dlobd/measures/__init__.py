"""Computes the figures of run.json besides the breakdown by layer, from evidence and attribution. Pure."""
