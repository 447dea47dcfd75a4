"""Collectives: algorithms of all ranks over one array, one a file. `mesh` has the connections that they talk over."""
