"""Checks of the findings: real runs with one scripted pathology each, and healthy runs. The expected finding of a run
is recorded before the run."""
