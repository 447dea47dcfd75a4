"""Finds missing sources of a bundle, and the layers with unknown time. Pure.

`kinds` is the table of sources. `spans`, `logs` and `records` compare the bundle with the required sources, which other
sources prove: a log names the containers, a process names its children, the job names its ranks.
"""
