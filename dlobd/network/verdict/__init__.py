"""Verdict on a transport: the kernel's counters decide which kind of transport carried the bytes.

`evidence` reads the counters in each rank. `byte_counts` and `rules` are pure and judge a bundle on any host.
"""
