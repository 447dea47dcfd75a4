"""The kernel: splits the wall time of a trace by layer. It may import only `spans`, `layers`, `schema` and `errors`."""
