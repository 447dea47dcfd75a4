"""A job belongs to the thread that waits for it; waits for streams have a name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.attribution.attribute import attribute
from dlobd.bundle import files
from dlobd.evidence.evidence import Evidence
from dlobd.job.user import hooks
from dlobd.timeline.assemble import assemble
from dlobd.timeline.tasks import WaitingThreads, jobs_elsewhere
from tests.captured import DATA

S = 10**9
BEGIN = 31138 * S
"""A time after the start of own-run's driver; times of the tests are seconds after it."""

AHEAD_NS = 1795719533404546111 - 31135674275306
"""The wall clock of own-run, relative to its monotonic clock."""

POOL, STREAM, DSTREAM = (
    "ResultQueryStageExecution-0",
    "stream execution thread for [id = 1]",
    "streaming-job-executor-0",
)

Call = tuple[str, float, float, str]  # method, start, end, Python thread
Job = tuple[int, float, float | None, str, dict[str, str]]  # ID, start, end, thread that logs its end, properties


def stamp(at_s: float) -> str:
    at_ns = BEGIN + round(at_s * S)
    wall = datetime.fromtimestamp((at_ns + AHEAD_NS) / S, UTC)
    return f"{at_ns} {wall.isoformat(timespec='milliseconds').removesuffix('+00:00')} INFO"


def bundle(path: Path, jobs: Iterable[Job], calls: Iterable[Call], more: Sequence[dict[str, Any]] = ()) -> Path:
    """Write a bundle as client, Spark 4.3 and the recorder write it."""
    lines = [f"{stamp(0)} spark.SparkContext [Thread-4]: Running Spark version 4.3.0"]
    events = []
    for number, start_s, end_s, thread, properties in jobs:
        what = f"job {number} (count at x.py:{number})"
        dag = "scheduler.DAGScheduler"
        lines.append(f"{stamp(start_s)} {dag} [dag-scheduler-event-loop]: Got {what} with 1 output partitions")
        if end_s is not None:
            took = f"Job {number} finished: count at x.py:{number}, took 1.2 ms"
            lines.append(f"{stamp(end_s)} {dag} [{thread}]: {took}")
        events.append({"Event": "SparkListenerJobStart", "Job ID": number, "Properties": properties})
    spans = [{"k": "s", "i": 1, "p": 0, "l": kinds.USER_CODE.layer, "n": kinds.USER_CODE, "t": BEGIN, "d": 60 * S}]
    for number, (method, start_s, end_s, thread) in enumerate(calls, 2):
        kind = kinds.WAIT_FOR_STREAM if method in hooks.STREAM_WAITS else kinds.JVM_CALL
        times = {"t": BEGIN + round(start_s * S), "d": round((end_s - start_s) * S)}
        span = {"k": "s", "i": number, "p": 0 if thread else 1, "l": kind.layer, "n": kind.text(method), **times}
        own = {"w": kind.wait} if kind.wait else {"a": {"jvm_call": True}}
        spans.append(span | own | ({"th": thread} if thread else {}))
    ready = {"application_id": "local-1795719540000", "master": "local[2]", "slots": 1}
    spans.append({"k": "i", "n": kinds.SPARK_CONTEXT_READY, "t": BEGIN, "a": ready})
    lines.append(f"{stamp(60)} spark.SparkContext [Thread-4]: Successfully stopped SparkContext")
    (source,) = (DATA / "own-run" / "spans" / "driver").iterdir()
    process = json.loads(source.read_text().splitlines()[0])
    cost = {"k": "cost", **dataclasses.asdict(tracing.Cost()), "lines": 1 + len(spans) + len(more)}
    for name, made in (
        (files.DRIVER_LOG, sorted(lines)),
        (files.EVENT_LOG, map(json.dumps, events)),
        (f"{files.DRIVER_SPANS}/{source.name}", map(json.dumps, [process, *spans, *more, cost])),
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("".join(f"{line}\n" for line in made))
    window = json.loads((DATA / "own-run" / files.WINDOW).read_text())
    (path / files.WINDOW).write_text(json.dumps(window | {"exit_ns": BEGIN + 62 * S}))
    (path / files.JOB).write_text((DATA / "own-run" / files.JOB).read_text())
    return path


def query(number: int, **more: str) -> dict[str, str]:
    return {"spark.sql.execution.id": str(number), **more}


MAIN = ("count", 1, 11, "")
OTHER = ("count", 2, 8, "Thread-5 (work)")

CASES: dict[str, tuple[list[Job], list[Call], dict[int, str | None]]] = {
    "main thread": ([(0, 3, 5, "Thread-4", {})], [MAIN], {0: ""}),
    "thread beside a call of the main thread": ([(0, 3, 5, "Thread-9", {})], [MAIN, OTHER], {0: "Thread-5 (work)"}),
    "both at once": (
        [(0, 3, 5, "Thread-9", {}), (1, 4, 9, "Thread-4", {})], [MAIN, OTHER], {0: "Thread-5 (work)", 1: ""},
    ),
    "main thread inside the call of another thread": ([(0, 3, 5, "Thread-4", {})], [MAIN, OTHER], {0: ""}),
    "SQL in a pool": ([(0, 3, 5, POOL, query(1))], [MAIN], {0: ""}),
    "SQL of a thread in a pool": ([(0, 3, 5, POOL, query(1))], [MAIN, OTHER], {0: "Thread-5 (work)"}),
    "SQL whose first stage fits into another call": (
        [(0, 3, None, "", query(1)), (1, 7, 10, POOL, query(1))], [MAIN, OTHER], {0: "", 1: ""},
    ),
    "several workers": (
        [(0, 3, 4, "Thread-9", {}), (1, 3, 6, "Thread-11", {}), (2, 5, 6, "Thread-9", {})],
        [("collect", 2, 4.5, "pool_0"), ("collect", 2.5, 6.5, "pool_1"), ("collect", 4.7, 6.2, "pool_0")],
        {0: "pool_0", 1: "pool_1", 2: "pool_0"},
    ),
    "threads of a pool that Python threads share": ([(0, 3, 5, "Thread-9", {})], [MAIN], {0: ""}),
    "streaming query": ([(0, 3, 5, STREAM, query(1)), (1, 6, 7, STREAM, {})], [MAIN], {0: None, 1: None}),
    "streaming query in a pool": ([(0, 3, 5, POOL, query(1, **{"sql.streaming.queryId": "a"}))], [MAIN], {0: None}),
    "foreachBatch": (
        [(0, 3, 5, POOL, query(1, **{"sql.streaming.queryId": "a"}))], [MAIN, OTHER], {0: "Thread-5 (work)"},
    ),
    "DStream": (
        [(0, 3, 5, DSTREAM, {}), (1, 6, None, "", {"spark.streaming.internal.batchTime": "1"})], [MAIN],
        {0: None, 1: None},
    ),
    "job of a call that failed": ([(0, 3, 30, POOL, query(1))], [MAIN], {0: ""}),
    "iterator that Spark serves": ([(0, 12, 13, "serve toLocalIterator", {})], [MAIN], {0: None}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_job_belongs_to_the_thread_that_waits_for_it(tmp_path: Path, case: str) -> None:
    jobs, calls, expected = CASES[case]
    evidence = Evidence(bundle(tmp_path, jobs, calls))
    python = evidence.driver_process
    assert python is not None
    threads = WaitingThreads(evidence, python)
    found: dict[int, str | None] = dict.fromkeys(expected)
    for thread, made in threads.calls.items():
        found |= {job.id: thread for call in made for job in threads.jobs_of(call)}
    assert found == expected
    assert {job.id for job, _ in threads.elsewhere} == {number for number, thread in expected.items() if thread != ""}
    lanes = {span.lane for span in assemble(evidence).spans if span.kind is kinds.JOB}
    ended = {number for number, _, end_s, _, _ in jobs if end_s is not None}
    assert lanes == {
        f"driver/{thread}" if thread else "driver"
        for number, thread in expected.items()
        if thread is not None and number in ended
    }


@pytest.mark.parametrize("method", hooks.STREAM_WAITS)
def test_a_wait_for_a_stream_is_a_named_wait(tmp_path: Path, method: str) -> None:
    jobs: list[Job] = [(n, 10 + 4 * n, 12 + 4 * n, POOL, {"sql.streaming.queryId": "a"}) for n in range(5)]
    path = bundle(tmp_path, jobs, [(method, 5, 30, ""), (*MAIN[:1], 40, 45, "")])
    evidence = Evidence(path)
    found = attribute(assemble(evidence))
    (spark,) = [row for row in found.layers if row.layer == "spark"]
    assert dict(spark.names)[f"wait for stream: {method}"] == 25 * S
    assert (kinds.END_OF_STREAM.text(), 25 * S, "read") in spark.causes
    assert not any(name.startswith(("job ", "submit job")) for name, _ in spark.names)
    assert sum(row.ns for row in found.layers) + found.unattributed_ns == found.wall_ns
    assert [*jobs_elsewhere(evidence)] == [
        "no call of the main thread waited for 5 Spark jobs of a stream, 10.000 s in total: count (5)"
    ]


def test_jobs_of_a_launcher_are_its_own(tmp_path: Path) -> None:
    """TFCluster.run starts its nodes in a job of another thread."""
    run = {"k": "s", "i": 90, "p": 1, "l": kinds.TFCLUSTER_RUN.layer, "n": kinds.TFCLUSTER_RUN, "t": BEGIN + 2 * S}
    jobs: list[Job] = [(0, 3, 50, "Thread-9", {})]
    assert [*jobs_elsewhere(Evidence(bundle(tmp_path, jobs, [], [run | {"d": 4 * S}])))] == []
