"""The record of a run, computed from its evidence, and the comparison of a stored record with it. Pure."""
