"""The verdict on a transport: which kind of transport really carried the bytes, by the kernel's counters.

`evidence` reads counters in each rank; `byte_counts` and `rules` are pure and run wherever a bundle is.
"""
