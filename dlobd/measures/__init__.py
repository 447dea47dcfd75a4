"""Measures: the numbers of run.json beside the split of the wall, each from evidence and the attribution. Pure."""
