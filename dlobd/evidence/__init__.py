"""Reads the evidence in a bundle into typed facts. `dlobd.timeline` interprets these facts."""
