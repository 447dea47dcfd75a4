"""Schedulers: how a job is sent to a cluster. `base` is the contract, one file a member."""
