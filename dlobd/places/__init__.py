"""Where a job runs. `base` is the contract, one file a member; `choice` opens the one that an experiment needs."""
