"""Faults of known size in real runs on the embedded cluster: delays, stops, and shortages.

The callers judge the effects: `selftest/` on the breakdown, `bench/pathologies` on the findings.
"""
