"""Models: what is trained. `base` is the contract, one file a model."""
