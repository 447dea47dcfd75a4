"""Samples and steps: what was put, taken and trained on."""

from __future__ import annotations

from typing import Any

from dlobd import spans as kinds
from dlobd.attribution.audits.base import EQUAL, NOT_MORE, Figures, Rule, cut_short, training_job, worst
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.feed import given_ns
from dlobd.attribution.importers.recorder import trainers
from dlobd.job.datasets.tfrecord import Layout


def _bytes(evidence: Evidence, name: str) -> int | None:
    found = [int(s.attrs.get("bytes", 0)) for p in evidence.processes for s in p.named(name)]
    return sum(found) if any(found) else None


def _input_bytes(evidence: Evidence) -> int | None:
    """What ranks read of their input; the chief reads its test set in the same way."""
    wanted = (kinds.STREAM, kinds.READ_INPUT)
    spans = [span for process in evidence.processes for span in process.spans if span.name in wanted]
    found = [int(span.attrs.get("bytes", 0)) for span in spans if span.attrs.get("purpose") == kinds.INPUT]
    return sum(found) if any(found) else None


def _fed(evidence: Evidence) -> str:
    """Why dlobd does not measure a feed; empty if it does."""
    job = training_job(evidence)
    if not job:
        return "the bytes that your own script feeds are not counted"
    return "" if job["input"] == "feed" else "the ranks read the input themselves"


def _read_and_put(evidence: Evidence) -> Figures:
    files, epochs = sum(evidence.file_bytes.values()), training_job(evidence).get("epochs", 0)
    return Figures(_bytes(evidence, kinds.PUT), files * epochs or None, why=_fed(evidence) or cut_short(evidence))


def _put_and_got(evidence: Evidence) -> Figures:
    put, got = _bytes(evidence, kinds.PUT), _bytes(evidence, kinds.GET)
    return Figures(put, got, why=_fed(evidence) or cut_short(evidence))


def _in_order(evidence: Evidence) -> Figures:
    """A trainer takes no block before a feed task began to put it."""
    early = []
    for container in evidence.executor_of:
        recorded = evidence.recorded_in(container)
        takers = [gets for process in recorded if (gets := process.named(kinds.GET))]
        puts = sorted((put for process in recorded for put in process.named(kinds.PUT)), key=lambda put: put.start_ns)
        if training_job(evidence) and len(takers) == 1 and puts:
            begun = {put.end_ns: put.start_ns for put in puts}
            given = given_ns(takers[0], puts)
            early += [begun[given[get.start_ns]] - get.end_ns for get in takers[0] if given.get(get.start_ns)]
    return worst(early, 0)


def _taken_and_trained(evidence: Evidence) -> Figures:
    job = training_job(evidence)
    if not job:
        return Figures(why="only your script knows what a sample is")
    # by WebHDFS or from a local file; a piece that was asked for again counts once, since only an answer has bytes
    fed = job["input"] == "feed"
    taken = _bytes(evidence, kinds.GET) if fed else _input_bytes(evidence)
    trained = _sum(evidence, "samples")
    taken = taken // Layout.of_job(job).record_bytes if taken else None
    return Figures(taken, trained, why=cut_short(evidence))  # a rank takes batches ahead of its steps


def _sum(evidence: Evidence, key: str) -> int | None:
    results: dict[int, dict[str, Any]] = evidence.results
    return sum(result[key] for result in results.values()) if results else None


def _steps(evidence: Evidence) -> Figures:
    spans = sum(len(process.steps()) for process in trainers(evidence.processes))
    return Figures(spans if trainers(evidence.processes) and training_job(evidence) else None, _sum(evidence, "steps"))


def _steps_and_samples(evidence: Evidence) -> Figures:
    steps, batch = _sum(evidence, "steps"), training_job(evidence).get("batch_size")
    return Figures(steps * batch if steps and batch else None, _sum(evidence, "samples"))


RULES = (
    Rule(
        "bytes into the feed", "The feed tasks put the whole input into the queues once per epoch.",
        "put spans of the feed tasks", "file lengths in HDFS x epochs", EQUAL, _read_and_put, whole=True,
    ),
    Rule(
        "bytes through the feed", "The trainers took from the queues all that was put into them.",
        "put spans of the feed tasks", "get spans of the trainers", EQUAL, _put_and_got, whole=True,
    ),
    Rule(
        "order of blocks", "A trainer took no block out of its queue before a feed task began to put it there.",
        "span files: ns by which one was taken earlier", "one machine's clock, ns", NOT_MORE, _in_order,
    ),
    Rule(
        "samples trained", "The trainers trained on all the input they received, from the feed or by reading.",
        "get or read spans / record length", "done-markers", EQUAL, _taken_and_trained, whole=True,
    ),
    Rule(
        "steps", "Each rank recorded a span for every step it reports.",
        "step spans", "done-markers", EQUAL, _steps, whole=True,
    ),
    Rule(
        "steps x batch", "Steps times batch size equals samples.",
        "done-markers: steps x batch", "done-markers: samples", EQUAL, _steps_and_samples, whole=True,
    ),
)  # fmt: skip
