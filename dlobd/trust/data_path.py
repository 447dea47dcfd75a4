"""Checks of the data path: samples, bytes, files and checksums, as counted by the job, by Spark and by HDFS."""

from dlobd import spans
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import (
    AUDIT_LOG,
    EVENT_LOG,
    INPUT_RECORDS,
    MARKERS,
    RANK_SPANS,
    TRACE_LOG,
    WORKER_SPANS,
)
from dlobd.hadoop.checksum import CHUNK_BYTES, CRC_BYTES
from dlobd.job.datasets.tfrecord import Layout
from dlobd.layers import HDFS
from dlobd.trust.base import (
    Compared,
    Facts,
    Rules,
    cut_short,
    daemon_trouble,
    external,
    passes,
    repeated_tasks,
    training_job,
    unknown,
)

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
    received = taken // Layout(tuple(job["image_shape"]), job["dtype"], job["classes"]).record_bytes
    trained = sum(result["samples"] for result in evidence.results.values())
    message = f"the ranks received {received:,} samples; they report {trained:,} trained samples"
    return Compared(received == trained, message, received, trained, repeated_tasks(evidence))


def trouble(evidence: Evidence) -> str:
    """Return a doubt if clients may have read the same bytes from HDFS more than once."""
    doubt = external(evidence) or daemon_trouble(evidence, "namenode", "datanode") or repeated_tasks(evidence)
    if doubt:
        return doubt
    if any(i.name == spans.DATANODE_GIVEN_UP for p in evidence.processes for i in p.instants):
        return "a DataNode did not respond, and the client used another DataNode"
    # WebHDFS reads through a client inside the DataNode
    nodes = [name for daemon in evidence.daemons if (name := str(daemon["name"])).startswith("datanode")]
    logs = (*map(evidence.container_log, evidence.executor_containers.values()), *map(evidence.daemon_log, nodes))
    for line in (line for log in logs for line in log if line.level in ("WARN", "ERROR")):
        if line.logger.startswith("hdfs.") or "BlockReader" in line.logger:
            return "a Java HDFS client logged a warning about a read or write"
    return ""


@RULES.add(
    "input-read-by-spark", "Spark event log: bytes read", "file lengths in HDFS x passes", EVENT_LOG, INPUT_RECORDS
)
def _input_read_by_spark(facts: Facts) -> Compared | None:
    """Check that Spark's tasks read the whole input once per pass.

    Detects lost task metrics and skipped input. Does not apply to training that ends before its last epoch.
    """
    evidence = facts.evidence
    job, times = training_job(evidence), passes(evidence)
    stored = sum(evidence.hdfs.file_bytes.values()) * (times or 0)
    if not stored or job["input"] != "feed" or cut_short(evidence):
        return None
    if not (tasks := evidence.event_log.tasks):
        return unknown("Spark's event log has no ended task")
    read = sum(task.read_bytes for task in tasks)
    message = f"Spark read {read:,} bytes of input; the files have {stored:,} bytes in {times} pass(es)"
    return Compared(read == stored, message, read, stored, trouble(evidence))


@RULES.add(
    "input-sent-by-datanodes",
    "DataNode client traces: bytes",
    "file lengths and checksums x passes",
    TRACE_LOG,
    INPUT_RECORDS,
)
def _input_sent_by_datanodes(facts: Facts) -> Compared | None:
    """Check that the DataNodes sent the blocks of the input once per pass, with their checksums.

    Failed in ef82ce2: a bundle lacked the client trace of a DataNode.
    """
    evidence, window = facts.evidence, facts.evidence.window
    blocks = {block for found in evidence.hdfs.blocks.values() for block in found}
    lengths = evidence.hdfs.file_bytes.values()
    expected = sum(n + CRC_BYTES * -(-n // CHUNK_BYTES) for n in lengths) * (passes(evidence) or 0)
    if not expected or not blocks or cut_short(evidence):
        return None
    if not evidence.hdfs.transfers:
        return unknown("the DataNodes' client traces have no transfer")
    sent = sum(
        transfer.bytes
        for transfer in evidence.hdfs.transfers
        if transfer.operation == "HDFS_READ"
        and transfer.block in blocks
        and window["exec_ns"] <= transfer.end_ns <= window["exit_ns"]
    )
    message = f"the DataNodes sent {sent:,} bytes of input; the job needs {expected:,} bytes, checksums included"
    return Compared(sent == expected, message, sent, expected, trouble(evidence))


@RULES.add("input-checksums", "HDFS: files with the expected checksum", "staging: files", INPUT_RECORDS, whole=False)
def _input_checksums(facts: Facts) -> Compared | None:
    """Check that HDFS reports the checksums that dlobd computed while it staged the input.

    Detects errors of dlobd's own computation, such as for files of several blocks. No real failure is known; a test
    edits a checksum.
    """
    staged, kept = facts.evidence.hdfs.checksums.get("staged") or {}, facts.evidence.hdfs.checksums.get("hdfs") or {}
    if not staged:
        return None
    if not staged.keys() <= kept.keys():  # HDFS's checksum depends on block and chunk size
        return unknown(f"HDFS has comparable checksums of {len(staged.keys() & kept.keys())} of {len(staged)} files")
    same = sum(kept[name] == checksum for name, checksum in staged.items())
    message = f"HDFS's checksum equals the checksum at staging for {same} of {len(staged)} input files"
    return Compared(same == len(staged), message, same, len(staged))


@RULES.add("files-written", "span files: writes", "NameNode audit log: created files", AUDIT_LOG, RANK_SPANS)
def _files_written(facts: Facts) -> Compared | None:
    """Check that the NameNode created one file for each write that a rank recorded.

    Failed in f93cb9d in one of some hundred runs: the driver ended a rank after it saw the done-marker, but before the
    rank's recorder had written the marker's span to disk.
    """
    evidence = facts.evidence
    folder = f"{training_job(evidence).get('run_dir', '')}/"
    if folder == "/" or not evidence.processes or not evidence.topology.has_spark:
        return None
    written = 0
    for recorded in (process.spans for process in evidence.processes):
        writes = recorded.where(recorded.is_any(lambda layer, name: layer == HDFS and name.startswith("write ")))
        written += sum(str(write.attrs.get("path", "")).startswith(folder) for write in writes)
    if not evidence.hdfs.audits:
        return unknown("the NameNode's audit log is missing")
    created = sum(
        line.command == "create" and line.path.startswith(folder) and line.at_ns >= evidence.window["exec_ns"]
        for line in evidence.hdfs.audits
    )
    message = f"the ranks recorded {written:,} written files; the NameNode created {created:,}"
    return Compared(written == created, message, written, created, trouble(evidence))
