"""Finds the sources that are missing from a bundle, and the layers whose time is unknown without them. Pure.

`kinds` is the table of sources. `spans`, `logs` and `records` compare the bundle with the sources that the topology
requires, as other sources prove them: a log names the containers, a process names its children, the job names its
ranks. `missing` joins the results, and marks the spans of a trace.
"""
