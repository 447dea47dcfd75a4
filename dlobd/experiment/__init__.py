"""Reads TOML files and command lines into a checked Experiment or OwnJob, before a run starts. `shipped/` contains the
built-in experiments."""
