"""Finds missing sources of a bundle, and the layers with unknown time. Pure.

`kinds` is the table of sources. `spans`, `logs` and `search` compare the bundle with the required sources. Other
sources show the required sources: containers are in a log, child processes in their parent's spans, and ranks in the
job.
"""
