"""Words of the first screen with their meanings. The glossary of docs/concepts.md has the same rows."""

WORDS = {
    "between marks": "quality of evidence: two events enclose the time, without evidence in between",
    "check": "a comparison of one quantity from two independent sources, with verdict, code and message",
    "finding": "a cause of lost time in a run, with the setting that reduces this time and an upper bound of the saving",
    "layer": "a part of the stack to which time is attributed, such as YARN, Spark or HDFS",
    "measured": "quality of evidence: a source shows begin and end of one call or phase",
    "named wait": "quality of evidence: a cause explains the wait",
    "noise": "differences between runs of the same experiment on the same machine",
    "overhead": "wall time minus training",
    "phase": "start-up, training or teardown; they follow each other and sum to the wall time",
    "possible saving": "bounds of the time that the largest finding saves; a replay without the cause gives them",
    "status": "`ok`: the job succeeded and no check failed. `invalid`: the job succeeded, but a check failed. "
    "`failed`: the job failed or timed out. `interrupted`: the user or the system ended it",
    "training": "time from the first batch to the end of the last training step",
    "unattributed": "wall time in which no span was open in the main lane",
    "unexplained": "wall time without evidence, inside and outside of layers",
    "verdict": "result of a comparison or of a check",
    "wall time": "duration of the window, from just before exec of spark-submit to its exit",
}
