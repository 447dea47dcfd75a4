"""Reads TOML files and command lines into a checked Experiment or OwnJob.

All checks take place before a run starts. `shipped/` contains the built-in experiments.
"""
