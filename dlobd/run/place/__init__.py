"""Where a job runs. `base` is the contract, one file a place; `choice` opens the one that an experiment needs."""
