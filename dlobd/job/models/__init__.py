"""Models. `base` is the contract; each model is a file."""
