"""Exchanges: what happens to gradients between their computation and the update. `base` is the contract, one file each.

Nothing here imports TensorFlow before a trainer asks for it: reports read what an exchange declares of itself.
"""
