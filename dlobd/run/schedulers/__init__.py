"""Schedulers: they build the submit command of an experiment, one module each. `base` is the contract."""
