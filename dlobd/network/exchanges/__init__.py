"""Exchanges of gradients between their computation and the update: `base` is the contract.

Nothing here imports TensorFlow before a trainer needs it: reports read the declarations of exchanges.
"""
