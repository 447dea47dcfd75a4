"""Checks of the findings: real runs with one scripted pathology each, whose expected finding was written down before.

table      THE table: each pathology, its construction, its expected finding; and healthy controls
stage      a run by the command line on one embedded cluster, with faults beside it
faults     the faults, by `dlobd.faults`: each is bounded in time and undone
network    a slow network for a whole run
own_jobs   pathologies of the user's own job
results    the findings of a run, stored as JSON, and their verdict
publish    the tables of docs/results.md
"""
