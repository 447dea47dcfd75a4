"""Checks of the findings: real runs, each with one scripted pathology, and healthy runs. The expected finding of each
run was recorded before it."""
