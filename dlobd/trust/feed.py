"""Checks of the data path: bytes and samples that feed tasks put, ranks take, and ranks train on."""

from dlobd import spans
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import INPUT_RECORDS, MARKERS, RANK_SPANS, WORKER_SPANS
from dlobd.job.datasets.tfrecord import Layout
from dlobd.trust.base import Compared, Facts, Rules, cut_short, repeated_tasks, training_job, unknown

RULES = Rules(whole=True)


def _bytes(evidence: Evidence, *wanted: str, purpose: str = "") -> int:
    """Return the sum of bytes of the spans with these names, and with this purpose unless it is empty."""
    found = (process.named(*wanted) for process in evidence.processes)
    wanted_only = (spans.where(spans.equals("purpose", purpose)) if purpose else spans for spans in found)
    return sum(int(spans.values("bytes").sum()) for spans in wanted_only)


def _is_fed(evidence: Evidence) -> bool:
    return training_job(evidence).get("input") == "feed" and not cut_short(evidence)


@RULES.add(
    "feed-put", "span files of feed tasks: bytes put", "file lengths in HDFS x epochs", WORKER_SPANS, INPUT_RECORDS
)
def _put(facts: Facts) -> Compared | None:
    """Check that feed tasks put the whole input into the queues, once per epoch. Failed in ef82ce2: a bundle lacked the
    span file of a feeding Python worker."""
    evidence = facts.evidence
    stored = sum(evidence.hdfs.file_bytes.values()) * training_job(evidence).get("epochs", 0)
    put = _bytes(evidence, spans.PUT)
    if not stored or not _is_fed(evidence):
        return None
    if not put:
        return unknown("no feed task recorded the bytes that it put")
    message = f"feed tasks put {put:,} bytes into the queues; the epochs have {stored:,} bytes of input"
    return Compared(put == stored, message, put, stored, repeated_tasks(evidence))


@RULES.add(
    "feed-taken", "span files of feed tasks: bytes put", "span files of ranks: bytes taken", WORKER_SPANS, RANK_SPANS
)
def _taken(facts: Facts) -> Compared | None:
    """Check that the ranks took out of the queues all bytes that feed tasks put in. Detects blocks that the queue lost.
    Does not apply to training that ends early, since a rank takes blocks ahead of its steps."""
    evidence = facts.evidence
    put, taken = _bytes(evidence, spans.PUT), _bytes(evidence, spans.GET)
    if not _is_fed(evidence) or not put:
        return None
    message = f"feed tasks put {put:,} bytes into the queues; the ranks took {taken:,} bytes"
    return Compared(put == taken, message, put, taken, repeated_tasks(evidence))


@RULES.add(
    "samples-received", "span files of ranks: bytes / record length", "done-markers: samples", RANK_SPANS, MARKERS
)
def _trained(facts: Facts) -> Compared | None:
    """Check that the ranks trained on all samples that they received, from the feed or by reading.

    Failed in ef82ce2: 3,000 of 6,000 samples, because a rank could not create its span file. Also fails for a full disk
    and a truncated span file (tests/full/ways/test_missing_evidence.py).
    """
    evidence, job = facts.evidence, training_job(facts.evidence)
    if not job or cut_short(evidence):  # a rank takes batches ahead of its steps
        return None
    if job["input"] == "feed":
        taken = _bytes(evidence, spans.GET)
    else:  # a retried piece counts once, since only a response has bytes
        taken = _bytes(evidence, spans.STREAM, spans.READ_INPUT, purpose=spans.INPUT)
    if not taken:
        return unknown("no rank recorded the bytes that it received")
    received = taken // Layout.of_job(job).record_bytes
    trained = sum(result["samples"] for result in evidence.results.values())
    message = f"the ranks received {received:,} samples; they report {trained:,} trained samples"
    return Compared(received == trained, message, received, trained, repeated_tasks(evidence))
