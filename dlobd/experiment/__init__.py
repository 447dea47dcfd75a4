"""Experiments: from TOML files and command lines to a checked Experiment or OwnJob.

All checks take place before a run starts. `shipped/` has the built-in experiments.
"""
