"""Micro-benchmarks of channels and exchanges, with processes on one host or in network namespaces.

`ends` measures a channel between two processes, `perftest` measures it with UCX's own program, `ranks` measures an
exchange between many processes, and `hosts` creates the links. The benchmarks need no cluster; dlobd's own exchanges
need no TensorFlow.
"""
