"""Places where jobs run, one module each. `base` is the contract and selects the place of an experiment."""
