"""Executes an experiment and produces a bundle. Start reading at `runner`, which has the steps of a run.

Code of this package needs a machine or a cluster. Its steps exchange only files in the bundle.
"""
