"""By what bytes really went: counters of the kernel before and after, what each rank saw, and a verdict on it.

`counters`, `tcp_info` and `evidence` read in the rank; `headers` and `verdict` are pure, and run wherever a bundle is.
"""
