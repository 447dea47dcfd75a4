"""Comparison of sets of runs: loading, compatibility, tests, confidence intervals, power, the gate of `dlobd check`.
Text for the terminal and the page is in `dlobd.report`."""
