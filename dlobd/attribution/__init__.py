"""The kernel: a trace in, the wall time by layer out. Only `spans`, `layers` and `schema` may enter."""
