"""Models. `base` has the contract; each model has a file."""
