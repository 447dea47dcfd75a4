"""Collectives between ranks: `mesh` has their connections and a barrier, `all_reduce` the algorithms."""
