"""Computes the record of a run from its evidence, and compares a stored record with the result. Pure."""
