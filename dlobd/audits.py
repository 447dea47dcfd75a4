"""Do independent sources agree? Each audit takes one quantity from two of them. Pure, over a bundle's evidence.

An audit passes, fails, or is unknown where one of its sources is not there. A failed one makes a run invalid in
comparisons: its numbers contradict each other, whoever is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from dlobd.clock import WallToMonotonic
from dlobd.datasets.tfrecord import Layout
from dlobd.importers import event_log, log4j
from dlobd.importers.event_log import TaskMetrics
from dlobd.importers.evidence import Evidence
from dlobd.importers.recorder import RecordedProcess, RecordedSpan

CHECKSUM_BYTES, CHUNK_BYTES = 4, 512
"""A DataNode sends a CRC32C with each chunk: dfs.bytes-per-checksum and dfs.checksum.type."""

MS = 1_000_000
MEMORY_SECONDS_SHARE = 0.005
"""YARN adds up per container, in milliseconds, from its own clock; so much its sum may differ from the log's."""

Verdict = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Audit:
    """Two figures of one quantity, and where each is from. `detail` is the rule, or why the verdict is unknown."""

    audit: str
    verdict: Verdict
    left: int | None
    left_source: str
    right: int | None
    right_source: str
    detail: str


def _job(evidence: Evidence) -> dict[str, Any]:
    """What dlobd's own training job was told; empty for a script of a person's own, of which nothing is known."""
    return {} if evidence.own else evidence.job


def audit(evidence: Evidence) -> list[Audit]:
    """All audits of one run, in a fixed order."""
    return [one(evidence) for one in AUDITS]


def _total(
    evidence: Evidence, name: str, left: tuple[int | None, str], right: tuple[int | None, str], rule: str = "equal"
) -> Audit:
    """As `_decide`, for what is only complete once a job has ended well."""
    if evidence.window["exit_code"] != 0:
        return Audit(name, "unknown", left[0], left[1], right[0], right[1], "no complete job: it did not end well")
    return _decide(name, left, right, rule)


def _decide(
    name: str,
    left: tuple[int | None, str],
    right: tuple[int | None, str],
    rule: str,
    holds: Callable[[int, int], bool] = lambda one, other: one == other,
) -> Audit:
    if left[0] is None or right[0] is None:
        absent = " and ".join(source for value, source in (left, right) if value is None)
        return Audit(name, "unknown", left[0], left[1], right[0], right[1], f"no {absent}")
    return Audit(name, "pass" if holds(left[0], right[0]) else "fail", left[0], left[1], right[0], right[1], rule)


# ---- HDFS


def _input_read_by_spark(evidence: Evidence) -> Audit:
    """Feed: what Spark's tasks read is what the files hold, once an epoch."""
    found = _tasks(evidence)
    read = sum(task.read_bytes for task in found) if found and _job(evidence).get("input") == "feed" else None
    files = sum(_file_bytes(evidence).values()) or None
    expected = files * _job(evidence)["epochs"] if files and _job(evidence) else None
    return _total(
        evidence, "input bytes, Spark", (read, "Spark event log"), (expected, "file lengths in HDFS x epochs"), "equal"
    )


def _input_sent_by_datanodes(evidence: Evidence) -> Audit:
    """What DataNodes sent of the input's blocks is what the files hold, with the checksums of each chunk."""
    lengths = _file_bytes(evidence)
    blocks = {block for found in evidence.blocks.values() for block in found}
    window = evidence.window
    sent = sum(
        t.bytes
        for t in evidence.transfers
        if t.operation == "HDFS_READ" and t.block in blocks and window["exec_ns"] <= t.end_ns <= window["exit_ns"]
    )
    epochs = _job(evidence).get("epochs", 0)
    expected = sum(n + CHECKSUM_BYTES * -(-n // CHUNK_BYTES) for n in lengths.values()) * epochs
    return _total(
        evidence,
        "input bytes, DataNodes",
        (sent if evidence.transfers else None, "DataNode client trace"),
        (expected or None, "file lengths in HDFS x epochs, with checksums"),
        "equal",
    )


def _input_holds_all_samples(evidence: Evidence) -> Audit:
    """The files are as long as their records say."""
    job = _job(evidence)
    record_bytes = Layout(job["image_values"]).record_bytes if job else None
    samples = job["steps"] * job["batch_size"] * job["workers"] // job["epochs"] if job else None
    files = sum(_file_bytes(evidence).values()) or None
    expected = record_bytes * samples if record_bytes and samples else None
    return _decide("input file lengths", (files, "NameNode"), (expected, "samples x record length"), "equal")


def _files_created(evidence: Evidence) -> Audit:
    """Every file that a rank wrote is a creation at the NameNode."""
    run_dir = _job(evidence).get("run_dir", "")
    written = [s for p in evidence.processes for s in p.spans if _is_write_below(s, run_dir)]
    created = [a for a in evidence.audits if a.command == "create" and a.path.startswith(f"{run_dir}/")]
    return _total(
        evidence,
        "files written",
        (len(written) if evidence.processes and run_dir else None, "spans of the ranks"),
        (len(created) if evidence.audits and run_dir else None, "NameNode audit log"),
        "equal",
    )


def _is_write_below(span: RecordedSpan, run_dir: str) -> bool:
    path = str(span.attrs.get("path", ""))
    return span.layer == "hdfs" and span.name.startswith("write ") and path.startswith(f"{run_dir}/")


# ---- samples


def _put_bytes(evidence: Evidence) -> int | None:
    put = [int(s.attrs.get("bytes", 0)) for p in evidence.processes for s in p.named("put")]
    return sum(put) if any(put) else None


def _got_bytes(evidence: Evidence) -> int | None:
    got = [int(s.attrs.get("bytes", 0)) for p in evidence.processes for s in p.named("get")]
    return sum(got) if any(got) else None


def _samples_read_and_put(evidence: Evidence) -> Audit:
    """Feed: what Spark's tasks put into the queues is what the files hold."""
    files = sum(_file_bytes(evidence).values()) or None
    return _total(
        evidence,
        "bytes into the feed",
        (_put_bytes(evidence), "put spans of the feed tasks"),
        (files * _job(evidence)["epochs"] if files and _job(evidence) else None, "file lengths in HDFS x epochs"),
    )


def _samples_put_and_got(evidence: Evidence) -> Audit:
    """Feed: what Spark's tasks put into the queues is what the trainers took out."""
    return _total(
        evidence,
        "bytes through the feed",
        (_put_bytes(evidence), "put spans of the feed tasks"),
        (_got_bytes(evidence), "get spans of the trainers"),
    )


def _samples_got_and_trained(evidence: Evidence) -> Audit:
    """What the trainers took is what they say they trained on."""
    got = _got_bytes(evidence)
    results = evidence.results
    trained = sum(result["samples"] for result in results.values()) if results else None
    record_bytes = Layout(_job(evidence)["image_values"]).record_bytes if _job(evidence) else None
    return _total(
        evidence,
        "samples trained",
        (got // record_bytes if got and record_bytes else None, "get spans / record length"),
        (trained, "done-markers"),
        "equal",
    )


def _steps(evidence: Evidence) -> Audit:
    """Each rank recorded a span for every step that it reports."""
    ranks = [p for p in evidence.processes if p.process.role in ("chief", "worker")]
    spans = sum(len(p.named("first step")) + len(p.named("step")) for p in ranks)
    results = evidence.results
    return _total(
        evidence,
        "steps",
        (spans if ranks else None, "step spans"),
        (sum(result["steps"] for result in results.values()) if results else None, "done-markers"),
        "equal",
    )


def _steps_and_samples(evidence: Evidence) -> Audit:
    """Steps times batch size is samples."""
    results = evidence.results
    batch = _job(evidence).get("batch_size")
    steps = sum(result["steps"] for result in results.values()) * batch if results and batch else None
    samples = sum(result["samples"] for result in results.values()) if results else None
    return _total(
        evidence, "steps x batch", (steps, "done-markers: steps x batch"), (samples, "done-markers: samples"), "equal"
    )


# ---- YARN

_CAPACITY = re.compile(r"Assigned container (container_\w+) of capacity <memory:(\d+),")
_MEMORY_SECONDS = re.compile(r"\bmemorySeconds=(\d+)")
_CONTAINERS = re.compile(r"\btotalAllocatedContainers=(\d+)")


def _summary(evidence: Evidence, pattern: re.Pattern[str]) -> int | None:
    """A field of the ResourceManager's summary of the application."""
    application = f"appId={evidence.window['application_id']},"
    for line in _rm_log(evidence):
        if application in line.message and (match := pattern.search(line.message)):
            return int(match[1])
    return None


def _rm_log(evidence: Evidence) -> list[log4j.LogLine]:
    return log4j.read(evidence.path / "logs" / "daemons" / "resourcemanager.log", "resourcemanager.log")


def _memory_seconds(evidence: Evidence) -> Audit:
    """The memory of each container times its life is what the ResourceManager charges for."""
    capacity = {m[1]: int(m[2]) for line in _rm_log(evidence) if (m := _CAPACITY.search(line.message))}
    total, complete = 0, bool(evidence.yarn.containers)
    for container, marks in evidence.yarn.containers.items():
        begun, ended = marks.at.get("ALLOCATED"), marks.at.get("COMPLETED") or marks.at.get("RELEASED")
        if begun is None or ended is None or container not in capacity:
            complete = False
            break
        total += capacity[container] * (ended - begun)
    return _decide(
        "container memory",
        (total // 10**9 if complete else None, "transitions in the RM log x capacity, MB-seconds"),
        (_summary(evidence, _MEMORY_SECONDS), "ResourceManager's memorySeconds"),
        f"within {MEMORY_SECONDS_SHARE:.1%}",
        lambda one, other: abs(one - other) <= MEMORY_SECONDS_SHARE * max(one, other),
    )


def _containers(evidence: Evidence) -> Audit:
    """The containers whose logs were collected are those that YARN handed out."""
    return _decide(
        "containers",
        (len(evidence.containers) if evidence.on_yarn else None, "log directories of containers"),
        (_summary(evidence, _CONTAINERS), "ResourceManager's totalAllocatedContainers"),
        "equal",
    )


def _application_inside(evidence: Evidence) -> Audit:
    """The application lived inside the window, by the ResourceManager's own wall-clock stamps."""
    window = evidence.window
    place = WallToMonotonic(evidence.anchors)
    start = _summary(evidence, re.compile(r"\bsubmitTime=(\d+)"))
    finish = _summary(evidence, re.compile(r"\bfinishTime=(\d+)"))
    outside: int | None = None
    if start is not None and finish is not None:
        early = window["exec_ns"] - (place.ms(start) + MS)  # a stamp t says [t, t + 1 ms)
        late = place.ms(finish) - window["exit_ns"]
        outside = max(early, late, 0)
    return _decide(
        "application inside the window",
        (outside, "ResourceManager's submitTime and finishTime: ns outside"),
        (abs(place.step_ns), "clock anchors: how far the wall clock was stepped, ns"),
        "not further outside than the wall clock was stepped",
        lambda one, other: one <= other,
    )


# ---- Spark


def _tasks(evidence: Evidence) -> list[TaskMetrics]:
    path = evidence.path / "evidence" / "event-log.jsonl"
    return event_log.tasks(path.read_text(errors="replace").splitlines()) if path.exists() else []


def _run_time_in_task(evidence: Evidence) -> Audit:
    """No executor says that it worked longer on a task than the driver saw the task."""
    found = _tasks(evidence)
    excess = [t.deserialize_ms + t.run_ms - (t.finish_ms - t.launch_ms) for t in found]
    return _decide(
        "run time inside the task",
        (max(excess) if excess else None, "event log: ms by which run time exceeds launch to finish"),
        (1 if excess else None, "resolution of the stamps, ms"),
        "not more",
        lambda one, other: one <= other,
    )


def _tasks_in_both_logs(evidence: Evidence) -> Audit:
    """The driver's log started the tasks that the event log ended."""
    ended = _tasks(evidence)
    started = [task.id for job in evidence.driver_log.jobs for task in job.tasks]
    return _total(
        evidence, "tasks", (len(started) or None, "driver log"), (len(ended) or None, "Spark event log"), "equal"
    )


# ---- our own recorder


def _spans(evidence: Evidence) -> Audit:
    """Every span that a process began was read: ids are handed out one by one, so that a lost one leaves a gap."""
    processes = [process for process in evidence.processes if process.spans]
    begun = sum(max(s.id for s in p.spans) - min(s.id for s in p.spans) + 1 for p in processes)
    read = sum(len(process.spans) for process in processes)
    return _decide(
        "spans",
        (begun if processes else None, "ids handed out by the recorder"),
        (read if processes else None, "spans read"),
        "equal",
    )


def _marks_and_logs(evidence: Evidence) -> Audit:
    """What a log says happened inside a call of ours did: SparkContext's start and stop."""
    violations = [
        max(span.start_ns - line.at_ns, line.at_ns - span.end_ns, 0)
        for name, point in (("SparkContext", "JVM SparkContext"), ("SparkContext.stop", "stopped"))
        for span in (evidence.driver_process.named(name)[:1] if evidence.driver_process else ())
        if (line := evidence.driver_log.points.get(point))
    ]
    return _decide(
        "own marks and Spark's log",
        (max(violations) if violations else None, "driver log: ns outside of our span around the call"),
        (log4j.RESOLUTION_NS if violations else None, "resolution of the log, ns"),
        "not more",
        lambda one, other: one <= other,
    )


def _process_lives(evidence: Evidence) -> Audit:
    """Nothing was recorded before spark-submit was started; of a driver beside it that ended well, nothing after it."""
    window = evidence.window
    outside = [max(window["exec_ns"] - process.opened_ns, 0) for process in evidence.processes] + [
        max(process.last_ns - window["exit_ns"], 0) for process in _before_the_end(evidence)
    ]
    return _decide(
        "records inside the window",
        (max(outside) if outside else None, "span files: ns outside"),
        (0 if outside else None, "client clock"),
        "not more",
        lambda one, other: one <= other,
    )


def _before_the_end(evidence: Evidence) -> Iterator[RecordedProcess]:
    """The driver's processes: those of containers may outlive spark-submit by YARN's clean-up."""
    if evidence.window["exit_code"] == 0 and evidence.driver_process and not evidence.cluster_mode:
        yield evidence.driver_process


def _file_bytes(evidence: Evidence) -> dict[str, int]:
    """Length of each input file, as the NameNode has it."""
    try:
        located: dict[str, Any] = json.loads((evidence.path / "evidence" / "blocks.json").read_text())
        return {path: int(answer["LocatedBlocks"]["fileLength"]) for path, answer in located.items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


AUDITS: tuple[Callable[[Evidence], Audit], ...] = (
    _input_read_by_spark,
    _input_sent_by_datanodes,
    _input_holds_all_samples,
    _files_created,
    _samples_read_and_put,
    _samples_put_and_got,
    _samples_got_and_trained,
    _steps,
    _steps_and_samples,
    _memory_seconds,
    _containers,
    _application_inside,
    _run_time_in_task,
    _tasks_in_both_logs,
    _spans,
    _marks_and_logs,
    _process_lives,
)
