"""Places where jobs run, one module per place. `base` is the contract and selects the place of an experiment."""
