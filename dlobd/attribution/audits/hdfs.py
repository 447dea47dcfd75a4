"""Bytes, files and checksums: what the job says that it read and wrote against what HDFS says."""

from __future__ import annotations

from collections.abc import Iterator

from dlobd import spans as kinds
from dlobd.attribution.audits.base import (
    EQUAL,
    NOT_MORE,
    Figures,
    Rule,
    cut_short,
    disturbed,
    foreign,
    other_clocks,
    outside_ns,
    passes,
    training_job,
    worst,
)
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.hdfs import close_answers
from dlobd.attribution.importers.log4j import RESOLUTION_NS, LogLine
from dlobd.attribution.importers.recorder import RecordedSpan
from dlobd.attribution.sources import logs
from dlobd.hadoop.checksum import CHUNK_BYTES, CRC_BYTES
from dlobd.job.datasets.tfrecord import Layout

BLOCK_BYTES = 128 << 20
"""dfs.blocksize by default."""

PREFETCH_BYTES = 10 * BLOCK_BYTES
"""Of so much of a file an HDFS client asks at once where its blocks are (dfs.client.read.prefetch.size: 10 blocks of
dfs.blocksize). The NameNode logs each time as an open."""


def troubled(evidence: Evidence) -> str:
    """Why HDFS may have been asked more than once for the same; empty if nothing says so."""
    why = foreign(evidence) or disturbed(evidence, "namenode", "datanode") or _untold(evidence)
    if not why and any(i.name == kinds.DATANODE_GIVEN_UP for p in evidence.processes for i in p.instants):
        why = "a DataNode did not respond and another one was used"
    if not why and any(_is_trouble(line) for line in _java_clients(evidence)):
        why = "a Java HDFS client logged a warning about a read or write"
    return why


def _untold(evidence: Evidence) -> str:
    """Which of HDFS's logs is missing; empty if none is."""
    return next((f"{one.what} {one.how}" for one in logs.of_hdfs(evidence)), "")


def _java_clients(evidence: Evidence) -> Iterator[LogLine]:
    for container in evidence.executor_containers.values():
        yield from evidence.container_log(container)
    for daemon in evidence.daemons:
        if str(daemon["name"]).startswith("datanode"):  # WebHDFS reads by a client inside of the DataNode
            yield from evidence.daemon_log(daemon["name"])


def _is_trouble(line: LogLine) -> bool:
    return line.level in ("WARN", "ERROR") and (line.logger.startswith("hdfs.") or "BlockReader" in line.logger)


def _all_files(evidence: Evidence) -> int | None:
    return sum(evidence.file_bytes.values()) or None


def _input_read_by_spark(evidence: Evidence) -> Figures:
    job, times, files = training_job(evidence), passes(evidence), _all_files(evidence)
    if job and job["input"] != "feed":
        return Figures(why="the ranks read the input, not Spark")
    read = sum(task.read_bytes for task in evidence.tasks) if evidence.tasks and job else None
    expected = files * times if files and times else None
    return Figures(read, expected, why=cut_short(evidence), doubt=troubled(evidence))


def _input_sent_by_datanodes(evidence: Evidence) -> Figures:
    times, window = passes(evidence), evidence.window
    blocks = {block for found in evidence.blocks.values() for block in found}
    sent = sum(
        t.bytes
        for t in evidence.transfers
        if t.operation == "HDFS_READ" and t.block in blocks and window["exec_ns"] <= t.end_ns <= window["exit_ns"]
    )
    lengths = evidence.file_bytes.values()
    expected = sum(n + CRC_BYTES * -(-n // CHUNK_BYTES) for n in lengths) * (times or 0)
    sent_bytes = sent if evidence.transfers and blocks else None
    return Figures(sent_bytes, expected or None, why=cut_short(evidence), doubt=troubled(evidence))


def _input_opened(evidence: Evidence) -> Figures:
    times, window = passes(evidence), evidence.window
    opened = sum(
        # WebHDFS asks the NameNode where to read, and its DataNode opens: only that one is an open of the file
        a.command == "open" and a.protocol == "rpc" and a.path in evidence.file_bytes
        for a in evidence.audits
        if window["exec_ns"] <= a.at_ns <= window["exit_ns"]
    )
    expected = len(evidence.file_bytes) * (times or 0)
    doubt = troubled(evidence)
    if max(evidence.file_bytes.values(), default=0) > PREFETCH_BYTES:
        doubt = doubt or "a client asks more than once where the blocks of a file this long are"
    return Figures(opened if evidence.audits else None, expected or None, why=cut_short(evidence), doubt=doubt)


def _input_holds_all_samples(evidence: Evidence) -> Figures:
    job = training_job(evidence)
    if not job:
        return Figures(_all_files(evidence))
    samples = job["steps"] * job["batch_size"] * job["workers"] // job["epochs"]
    return Figures(_all_files(evidence), samples * Layout.of_job(job).record_bytes)


def _input_checksums(evidence: Evidence) -> Figures:
    staged, kept = evidence.checksums.get("staged") or {}, evidence.checksums.get("hdfs") or {}
    same = sum(kept.get(name) == checksum for name, checksum in staged.items())
    # HDFS's checksum of a file with other blocks or chunks cannot equal dlobd's
    return Figures(same if staged and staged.keys() <= kept.keys() else None, len(staged) or None)


def _files_written(evidence: Evidence) -> Figures:
    run_dir = training_job(evidence).get("run_dir", "")
    written = [s for p in evidence.processes for s in p.spans if _is_write_below(s, run_dir)]
    created = [
        a
        for a in evidence.audits
        if a.command == "create" and a.path.startswith(f"{run_dir}/") and a.at_ns >= evidence.window["exec_ns"]
    ]
    return Figures(
        len(written) if evidence.processes and run_dir else None,
        len(created) if evidence.audits and run_dir else None,
        doubt=troubled(evidence),
    )


def _is_write_below(span: RecordedSpan, run_dir: str) -> bool:
    path = str(span.attrs.get("path", ""))
    return span.layer == "hdfs" and span.name.startswith("write ") and path.startswith(f"{run_dir}/")


def _writes_and_creations(evidence: Evidence) -> Figures:
    run_dir = training_job(evidence).get("run_dir", "")
    created: dict[str, list[int]] = {}
    closed: dict[str, list[int]] = {}
    for a in evidence.audits:
        if a.command == "create":
            created.setdefault(a.path, []).append(a.at_ns)
    for answer in close_answers(evidence.daemon_log("namenode")):
        if answer.closed:
            closed.setdefault(answer.path, []).append(answer.at_ns)
    outside = [
        min(outside_ns(span, at_ns) for at_ns in done[span.attrs["path"]])
        for process in evidence.processes
        for span in process.spans
        for done in (created, closed)
        if run_dir and _is_write_below(span, run_dir) and not span.truncated and span.attrs["path"] in done
    ]
    return worst(outside, RESOLUTION_NS, troubled(evidence) or other_clocks(evidence))


def _written_bytes(evidence: Evidence) -> Figures:
    """A DataNode notes the length of each block that it was sent; a file of one block is as long as its block."""
    run_dir = training_job(evidence).get("run_dir", "")
    kept = [t for t in evidence.transfers if t.operation == "HDFS_WRITE"]
    writes = [
        span
        for process in evidence.processes
        for span in process.spans
        if run_dir and _is_write_below(span, run_dir) and 0 < span.attrs.get("bytes", 0) <= BLOCK_BYTES
    ]
    found = sum(
        any(t.bytes == w.attrs["bytes"] and w.start_ns <= t.end_ns <= w.end_ns + RESOLUTION_NS for t in kept)
        for w in writes
    )
    doubt = troubled(evidence) or other_clocks(evidence)
    return Figures(found, len(writes), doubt=doubt) if writes and kept else Figures(doubt=doubt)


def _splits(evidence: Evidence) -> Figures:
    """Splits tile a file: those of one pass are together as long as it."""
    times = passes(evidence)
    if not times or training_job(evidence)["input"] != "feed":
        return Figures(why="Spark did not read the input of a training job")
    splits = [split for log in evidence.executors.values() for split in log.splits.values()]
    inputs = [split.bytes for split in splits if split.path in evidence.file_bytes]
    files = _all_files(evidence)
    expected = files * times if files else None
    return Figures(sum(inputs) if inputs else None, expected, why=cut_short(evidence), doubt=troubled(evidence))


def staged_blocks(evidence: Evidence) -> dict[str, tuple[str, int]]:
    """The blocks that spark-submit uploaded, to path and bytes; files of several blocks are left out."""
    return {
        t.block: (path, t.bytes)
        for line, path, next_line_ns in evidence.submit_log.uploads
        for t in evidence.transfers
        if t.operation == "HDFS_WRITE" and line.at_ns <= t.end_ns <= next_line_ns and t.bytes <= BLOCK_BYTES
    }


def _staged_bytes(evidence: Evidence) -> Figures:
    """Who localises a file reads all of it, with its checksums."""
    wrote = {block: length for block, (_, length) in staged_blocks(evidence).items()}
    reads = [t for t in evidence.transfers if t.operation == "HDFS_READ" and t.block in wrote]
    whole = sum(t.bytes == wrote[t.block] + CRC_BYTES * -(-wrote[t.block] // CHUNK_BYTES) for t in reads)
    return Figures(whole, len(reads), doubt=troubled(evidence)) if reads else Figures()


FILES = "file lengths in HDFS x passes over them"

RULES = (
    Rule(
        "input bytes, Spark", "Spark's tasks read the whole input once per pass.",
        "Spark event log", FILES, EQUAL, _input_read_by_spark, whole=True,
    ),
    Rule(
        "input bytes, DataNodes", "The DataNodes sent the input's blocks once per pass.",
        "DataNode client trace", f"{FILES}, with checksums", EQUAL, _input_sent_by_datanodes, whole=True,
    ),
    Rule(
        "input opens", "Each input file was opened once per pass.",
        "NameNode audit log", "input files x passes over them", EQUAL, _input_opened, whole=True,
    ),
    Rule(
        "input file lengths", "The input files have the length that their records imply.",
        "file lengths in HDFS", "samples x record length", EQUAL, _input_holds_all_samples,
    ),
    Rule(
        "input checksums", "HDFS holds what was staged: its checksums match those computed at staging.",
        "checksums by HDFS: files that agree", "checksums at staging: files", EQUAL, _input_checksums,
    ),
    Rule(
        "files written", "Every file that a rank wrote was created at the NameNode, and no others were.",
        "write spans of the ranks", "NameNode audit log", EQUAL, _files_written, whole=True,
    ),
    Rule(
        "own marks and the NameNode's log", "The NameNode logged each creation and close of a file while our write "
        "span was open.",
        "NameNode logs: ns outside of our span", "resolution of the log, ns", NOT_MORE, _writes_and_creations,
    ),
    Rule(
        "written bytes", "A DataNode got each file that a rank wrote, with its bytes, while the rank wrote it.",
        "DataNode client trace: files", "write spans of the ranks", EQUAL, _written_bytes, whole=True,
    ),
    Rule(
        "input splits", "The splits that Spark's tasks read are together as long as the input, once per pass.",
        "executor logs: bytes of splits", FILES, EQUAL, _splits, whole=True,
    ),
    Rule(
        "bytes of staged files", "Who localised a staged file read all of it.",
        "DataNode client trace: whole reads", "DataNode client trace: reads", EQUAL, _staged_bytes, whole=True,
    ),
)  # fmt: skip
