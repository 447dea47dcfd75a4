"""Sets of runs side by side: loading, compatibility, tests, intervals, power, the gate of `dlobd check`.

A module here computes figures from finished runs. Text for the terminal and the page is in `dlobd.report`.
"""
