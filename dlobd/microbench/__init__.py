"""Micro-benchmarks of channels and exchanges: real processes, on one host or on hosts that are network namespaces.

`ends` measures a channel between two processes, `perftest` does the same by UCX's own program, `ranks` an exchange
between many; `hosts` makes the links. Nothing here needs a cluster, or TensorFlow for exchanges of dlobd's own.
"""
