"""Measures: the numbers of run.json beside the split of the wall time, each from evidence and the attribution. Pure."""
