"""Whether findings are right: real runs with one scripted pathology each, whose finding was written down before.

table      THE table: each pathology, how it is made, and the finding that is expected of it; and healthy controls
stage      a run of `dlobd` as a person starts it, on one embedded cluster, with faults beside it
faults     what is done to the run from outside; each is bounded in time and undone
network    a slow network for a whole run
own_jobs   pathologies that are the user's own job's
results    what a run's findings say, kept as JSON, and whether that is right
publish    the tables of docs/findings.md
"""
