"""Edits of logs and records, chosen by what would improve a figure, without knowledge of what looks for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dlobd.bundle import files
from tests.mutations.edits import Edit, both, changed, moved, replaced, without
from tests.mutations.mutation import Mutation

DAEMONS = "logs/daemons/"
MARKS = "evidence/markers.json"
SECOND_EXECUTOR = "logs/containers/*_000003/stderr"


def _added(name: str, content: Any) -> Edit:
    """A record of something that was not measured."""

    def edit(path: Path) -> None:
        (path / name).write_text(json.dumps(content))

    return edit


MUTATIONS = (
    Mutation(
        "the window begins where the JVM does",
        "quick-run",
        both(
            changed(files.WINDOW, "exec_ns", by=lambda at: at + 90_000_000),
            changed(files.WINDOW, "started_ns", by=lambda at: at + 90_000_000),
        ),
        "the anchor that is read just before exec is 90 ms older",
    ),
    Mutation(
        "the window ends 0.6 s after spark-submit",
        "quick-run",
        both(
            changed(files.WINDOW, "exit_ns", by=lambda at: at + 600_000_000),
            changed(files.WINDOW, "anchors", 1, "monotonic_ns", by=lambda at: at + 600_000_000),
            changed(files.WINDOW, "anchors", 1, "wall_ns", by=lambda at: at + 600_000_000),
        ),
        "daemons log the requests of the collection, which comes after the end, before it",
    ),
    Mutation(
        "starting the ranks is not in the window",
        "native-run",
        both(
            changed(files.WINDOW, "exec_ns", by=lambda at: at + 150_000_000),
            changed(files.WINDOW, "started_ns", by=lambda at: at + 150_000_000),
            changed(files.WINDOW, "anchors", 0, "monotonic_ns", by=lambda at: at + 150_000_000),
            changed(files.WINDOW, "anchors", 0, "wall_ns", by=lambda at: at + 150_000_000),
        ),
        "the kernel's start of the parent process lies before the window",
    ),
    Mutation(
        "the executor's files are there at once",
        "quick-run",
        moved(f"{DAEMONS}nodemanager-0.log", "_000003 transitioned from LOCALIZING to SCHEDULED", -1_200_000_000),
        "the localiser's reads at the NameNode and the DataNodes, and the container, which starts 1.2 s later",
    ),
    Mutation(
        "one NodeManager left no log",
        "quick-run",
        without(f"{DAEMONS}nodemanager-0.log"),
        "the ResourceManager's log has a container on that node",
    ),
    Mutation(
        "the ResourceManager left no log, and the client's first anchor is a quarter second off",
        "quick-run",
        both(
            without(f"{DAEMONS}resourcemanager.log"),
            changed(files.WINDOW, "anchors", 0, "wall_ns", by=lambda at: at + 250_000_000),
        ),
        "the client's second anchor, and the wall clock in every log line",
    ),
    Mutation(
        "a tenth of Spark's own files was localised",
        "quick-run",
        replaced(
            f"{DAEMONS}datanode-1-clienttrace.log", "bytes: 3987928, op: HDFS_READ", "bytes: 398792, op: HDFS_READ", 0
        ),
        "the same block was written with 3957012 bytes",
    ),
    Mutation(
        "the training files were opened a second earlier",
        "quick-run",
        moved(f"{DAEMONS}namenode-audit.log", "cmd=open\tsrc=.*/train/part-00001", -1_000_000_000),
        "",
    ),
    Mutation(
        "tasks ran half as long",
        "quick-run",
        replaced(
            files.EVENT_LOG, r'"Executor Run Time":(\d+)', lambda at: f'"Executor Run Time":{int(at[1]) // 2}', count=0
        ),
        "the same event's accumulables",
    ),
    Mutation(
        "Spark read half of a file",
        "quick-run",
        replaced(SECOND_EXECUTOR, r"part-00001.tfrecord:0\+2514000", "part-00001.tfrecord:0+1257000"),
        "the event log's bytes of that task, and the file's length",
    ),
    Mutation(
        "the second executor registered 1.5 s earlier",
        "quick-run",
        moved(files.DRIVER_STDERR, r"Registered executor .* with ID 2,", -1_500_000_000),
        "the executor connected to the driver after that",
    ),
    Mutation(
        "the wait for executors is no poll",
        "quick-run",
        moved(files.DRIVER_STDERR, "SchedulerBackend is ready for scheduling", -85_000_000),
        "",
    ),
    Mutation(
        "staging ends 0.3 s later",
        "quick-run",
        moved(files.DRIVER_STDERR, "Submitting application application_", 300_000_000),
        "the ResourceManager stored the application before",
    ),
    Mutation(
        "executors need half the memory",
        "quick-run",
        changed("evidence/collected.json", "metrics", "executor_peak_bytes", by=lambda peak: peak // 2),
        "",
    ),
    Mutation(
        "the page cache was cold",
        "quick-run",
        _added(
            files.PAGE_CACHE,
            {"asked": "as-is", "resident_bytes": 0, "total_bytes": 2514000, "before_resident_bytes": 2514000},
        ),
        "the training files have twice as many bytes",
    ),
    Mutation(
        "a newer TensorFlow",
        "quick-run",
        changed(files.RUN, "versions", "tensorflow", by=lambda _: "2.22.0"),
        "each rank noted the version that it imported",
    ),
    Mutation(
        "staging took a tenth",
        "quick-run",
        changed(files.RUN, "setup", "staging_ns", by=lambda ns: ns // 10),
        "",
    ),
    Mutation(
        "executors of 4 GB",
        "quick-run",
        changed(files.RUN, "configuration", "executor_memory_mb", by=lambda _: 4096),
        "spark-submit's line, and the containers that the ResourceManager handed out",
    ),
    Mutation(
        "a checkpoint was asked for after 30 steps only",
        "quick-run",
        both(
            changed(files.RUN, "configuration", "checkpoint_every_steps", by=lambda _: 30),
            changed(files.JOB, "checkpoint_every_steps", by=lambda _: 30),
        ),
        "rank 0 wrote ckpt-15, in its spans, the NameNode's log and the DataNodes' trace",
    ),
    Mutation(
        "an accuracy of 0.9315",
        "quick-run",
        replaced(MARKS, r'\\"accuracy\\": 0.83', r'\\"accuracy\\": 0.9315'),
        "the done-marker's length when it was written, of the span and of the DataNode",
    ),
    Mutation(
        "a lower last loss",
        "native-run",
        replaced(MARKS, r"0\.5177327990531921\]", "0.3177327990531921]", count=0),
        "",
    ),
)
