"""Exchanges of gradients between their computation and the update: `base` defines their interface.

No module imports TensorFlow before a trainer needs it, because reports read the declarations of exchanges.
"""
