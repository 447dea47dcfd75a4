"""Schedulers, which build the submit command of an experiment; one module per scheduler. `base` is the contract."""
