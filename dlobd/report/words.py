"""Words of the first screen and their meanings: the view `words`, the page and docs/concepts.md are made from them."""

from dlobd.layers import LAYERS

WORDS: dict[str, str] = {
    "application": "YARN application of the run: the ID that YARN and Spark's history server use",
    "busy machine": "a machine on which other processes delayed the run for more than 2 % of its wall time",
    "check": "comparison of one quantity from two independent sources",
    "evidence": "logs, marks and counters from which the figures follow; the bundle has all of them",
    "exchange": "averaging of the gradients of all workers after each step",
    "executors": "worker processes of Spark, each in its own container of YARN",
    "experiment": "named configuration of a run",
    "finding": "cause of lost time in a run, with the setting that reduces this time, and bounds of the saving",
    "inferred": "quality of evidence: two events enclose the time, without evidence in between; also `between marks`",
    "known wait": "quality of evidence: a configured heartbeat, poll or sleep explains the wait; also `named wait`",
    "launcher": "component that starts and stops the training processes on Spark's executors",
    "layer": "part of the stack to which time is attributed. Each nanosecond belongs to exactly one layer",
    "lost work": "task attempts of Spark whose results were not used. Their time is wall time only if a job waited",
    "measured": "quality of evidence: a source shows begin and end of one call or phase",
    "model": "neural network that the run trained, and its data set",
    "noise": "differences between the wall times of equal runs on the same machine",
    "other": "sum of the layers below 2 % of the wall time",
    "overhead": "wall time minus training",
    "phase": "start-up, training (or Spark jobs) and teardown follow each other; they sum to the wall time",
    "possible saving": "lower and upper bound of the largest finding above noise. Savings overlap; do not add them up",
    "remedy": "change of a setting that saves the time of a finding",
    "scheduler": "component that starts the processes of the job: YARN, or Spark's own Master",
    "script": "your own Python script, which ran unchanged",
    "Spark jobs": "phase from the start of the first Spark job to the end of the last, in a run without training steps",
    "start-up": "phase from the start of spark-submit to the first training step or Spark job",
    "status": "`ok`: the job succeeded and no check failed. `invalid`: the job succeeded, but a check failed. "
    "`failed`: the job failed or timed out. `interrupted`: the user or the system ended it",
    "teardown": "phase from the last training step or Spark job to the exit of spark-submit",
    "tracking URL": "page of the application at the ResourceManager, while the cluster is up",
    "training": "phase from the first batch to the last step of any worker, with its waits for input",
    "unattributed": "wall time in which no layer was active, as far as the evidence shows",
    "unexplained": "wall time without sufficient evidence: unattributed time, and waits without a known cause",
    "verdict": "result of a check (`pass`, `fail`, `unknown`) or of a comparison (`faster`, `slower`, `equivalent`, "
    "`inconclusive`)",
    "wall time": "time from just before the start of spark-submit to its exit",
    "workers": "training processes of the job",
}
"""Meaning of each word, in alphabetical order. A layer's title is a word, too: see `layer_words`."""


def layer_words() -> dict[str, str]:
    """Return the meaning of each layer's title: begin and end of its time."""
    return {row.title: f"layer. Begins: {row.opens}. Ends: {row.closes}" for row in LAYERS.values()}
