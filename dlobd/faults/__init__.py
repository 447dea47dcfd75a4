"""Faults of known size in real runs on the embedded cluster: delays, stops, and shortages.

The callers judge the effect: `selftest/` that on the breakdown, `bench/pathologies` that on the findings.
"""
