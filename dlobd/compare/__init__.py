"""Comparison of sets of runs: loading, compatibility, tests, confidence intervals, power, the gate of `dlobd check`. The
text for terminal and page is in `dlobd.report`."""
