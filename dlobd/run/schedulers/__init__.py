"""From an experiment to the command that submits it. `base` is the contract, one file a scheduler."""
