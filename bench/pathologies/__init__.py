"""Checks of the findings: real runs with one scripted pathology each, and healthy runs. The expected finding of each
run was written down before."""
