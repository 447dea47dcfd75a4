"""Collectives over a mesh of connections: `mesh` with a barrier, and the algorithms of `all_reduce`."""
