"""Blind mutations of logs, event logs, JVM logs and files of evidence: what a vendor would like to be true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.mutations.edits import Edit, both, changed, marker, moved, replaced, without_lines
from tests.mutations.mutation import Mutation

MS = 1_000_000
DAEMONS, SEEN = "logs/daemons", "logs/containers/container_1795569250184_0001_01"
RM, DRIVER = f"{DAEMONS}/resourcemanager.log", "logs/driver.stderr"


def numbered(by: Callable[[int], int]) -> Callable[[re.Match[str]], str]:
    """A replacement that changes the number which is the second group of a match."""
    return lambda match: f"{match[1]}{by(int(match[2]))}{match[3]}"


def times(name: str, pattern: str, factor: float, count: int = 0) -> Edit:
    """Multiplies the number in the middle of three groups."""
    return replaced(name, pattern, numbered(lambda old: round(old * factor)), count)


def tasks(change: Callable[[dict[str, Any]], None]) -> Edit:
    """Changes the ends of tasks in Spark's event log."""

    def edit(path: Path) -> None:
        file = path / "evidence/event-log.jsonl"
        old = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
        before = json.dumps(old)
        for line in old:
            if line["Event"] == "SparkListenerTaskEnd":
                change(line)
        if json.dumps(old) == before:
            raise LookupError("no end of a task to edit")
        file.write_text("".join(json.dumps(line) + "\n" for line in old))

    return edit


def collected_longer(line: dict[str, Any]) -> None:
    """The garbage collection of a task of the feed job, 1.5 s longer, in both places of its end."""
    if line["Stage ID"] == 1:
        line["Task Metrics"]["JVM GC Time"] += 1500
        for one in line["Task Info"]["Accumulables"]:
            if one["Name"] == "internal.metrics.jvmGCTime":
                one["Update"] += 1500


def without_early_pauses(name: str) -> Edit:
    """A JVM's log without its first two pauses; the others are numbered anew."""
    renumbered = replaced(name, r"(GC\()(\d+)(\))", numbered(lambda old: old - 2), 0)
    return both(without_lines(name, r"GC\([01]\)"), renumbered)


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "the AM was localised 1.5 s earlier, by the NodeManager and by its metrics",
        "seen-run",
        both(
            moved(f"{DAEMONS}/nodemanager-1.log", r"_000001 transitioned from LOCALIZING to SCHEDULED", -1500 * MS),
            moved(f"{DAEMONS}/nodemanager-1.log", r"Starting container \[\S+_000001\]", -1500 * MS),
            replaced("evidence/nm-containers.json", r'"localizationDurationMs": 1897', '"localizationDurationMs": 397'),
            replaced("evidence/nm-containers.json", r'"launchDurationMs": 109', '"launchDurationMs": 1609'),
        ),
        "the DataNodes sent the AM's three files until 1.28 s after it was localised",
    ),
    Mutation(
        "an executor's log4j began 7 s earlier, by its own line",
        "seen-run",
        replaced(f"{SEEN}_000003/stderr", r"^2026-11-25T01:15:31\.", "2026-11-25T01:15:24."),
        "jvm.log of that executor: its JVM began 0.8 s later, and had created itself 0.7 s after that",
    ),
    Mutation(
        "YARN allocated the executors 0.3 s earlier",
        "seen-run",
        both(
            moved(RM, r"_00000[23] Container Transitioned from NEW to ALLOCATED", -300 * MS),
            moved(RM, r"Assigned container container_\S+_00000[23]", -300 * MS),
        ),
        "the AM's log: its call of allocate, which asked for them, began 0.28 s after that",
    ),
    Mutation(
        "the driver had the second executor 0.7 s earlier",
        "own-run",
        moved(DRIVER, r"Registered executor .* with ID 2,", -700 * MS),
        "executor 2's log: it connected to the driver 0.09 s after it was registered",
    ),
    Mutation(
        "spark-submit's JVM was up 0.8 s later, and its first collections are gone",
        "sampled-run",
        both(
            replaced("evidence/driver-jvm.log", r"^\[14709585061145ns\]", "[14710385061145ns]"),
            without_early_pauses("evidence/driver-jvm.log"),
        ),
        "resources.jsonl: process 3942, a java, had used 0.38 s of CPU 0.44 s before that JVM was up",
    ),
    Mutation(
        "the driver's JVM ended 0.25 s earlier",
        "killed-trainer",
        replaced("evidence/driver-jvm.log", r"^(\[)(\d+)(ns\]\[gc,heap,)", numbered(lambda ns: ns - 250 * MS), 0),
        "the driver's spans: its SparkContext.stop, a call into that JVM, returned after it had ended",
    ),
    Mutation(
        "the AM registered 3 s earlier, in its own log and in the ResourceManager's",
        "seen-run",
        both(
            moved(RM, r"Auth successful for \S+ .*:43308|AM registration|LAUNCHED to RUNNING", -3000 * MS),
            moved(RM, r"ACCEPTED to RUNNING", -3000 * MS),
            moved(f"{SEEN}_000001/stderr", r"Registering the App|registerApplicationMaster", -3000 * MS),
            moved(f"{SEEN}_000001/stderr", r"Connecting to ResourceManager", -3000 * MS),
        ),
        "the driver's log: it asked for the report three more times, each time for an application not yet RUNNING",
    ),
    Mutation(
        "the driver's JVM paused for 3 s to collect garbage",
        "own-run",
        replaced("evidence/driver-jvm.log", r"(GC\(35\) Pause Remark .*) 118\.518ms", r"\1 3118.518ms"),
        "lines of the driver's log, other pauses in driver-jvm.log and the JVM's answers to spans lie inside it",
    ),
    Mutation(
        "the feed job's tasks collected garbage for 3 s more",
        "sampled-run",
        tasks(collected_longer),
        "the executors' jvm.log: their pauses in that time add up to 0.1 s; the stage's own sum in StageCompleted",
    ),
    Mutation(
        "pyspark.zip has ten times the bytes, written and read",
        "sampled-run",
        times(f"{DAEMONS}/datanode-1-clienttrace.log", r"(bytes: )(39\d{5}|398\d{4})(, op.*)", 10),
        "resources.jsonl: loopback carried 38 MB in the whole run, and that DataNode wrote 4 MB to its disk",
    ),
    Mutation(
        "tasks opened ten times the input, of files that are as long",
        "killed-trainer",
        both(
            times("logs/containers/*/stderr", r"(part-0000\d\.tfrecord:0\+)(2514000)()", 10),
            times("evidence/blocks.json", r'("fileLength": )(2514000)(,)', 10),
            times("evidence/blocks.json", r'("numBytes": )(2514000)(\})', 10),
        ),
        "the DataNodes sent 2,533,644 bytes of each of these blocks; a feed task put 30 blocks of 83,800 bytes",
    ),
    Mutation(
        "of the training files nothing was in memory",
        "sampled-run",
        both(
            changed("evidence/page_cache.json", "asked", by=lambda _: "cold"),
            changed("evidence/page_cache.json", "resident_bytes", by=lambda _: 0),
        ),
        "resources.jsonl: the DataNodes, which sent 5 MB of these files, had disks read 0 bytes",
    ),
    Mutation(
        "the NameNode accepted each close at once",
        "seen-run",
        without_lines(f"{DAEMONS}/namenode.log", r"is COMMITTED but not COMPLETE"),
        "the driver's log calls complete of py4j-0.10.9.9-src.zip twice, 0.4 s apart",
    ),
    Mutation(
        "an executor's container needed half the memory, by the metrics and by the NodeManagers",
        "sampled-run",
        both(
            changed("evidence/collected.json", "metrics", "executor_peak_bytes", by=lambda _: 568 << 20),
            times("evidence/nm-containers.json", r'("PMemUsageMBsMaxMBs": )(1\d{3})(\.0)', 0.5),
            times("evidence/nm-containers.json", r'("PMemUsageMBHistogram\d+thPercentileMBs": )(\d{3,4})(,)', 0.5),
        ),
        "resources.jsonl: an executor's JVM, worker and trainer have 0.29, 0.09 and 0.67 GB resident in one sample",
    ),
    Mutation(
        "the run ended 0.4 s earlier, with its last clock anchor",
        "native-run",
        both(
            changed("evidence/window.json", "exit_ns", by=lambda ns: ns - 400 * MS),
            changed("evidence/window.json", "anchors", 1, "monotonic_ns", by=lambda ns: ns - 400 * MS),
            changed("evidence/window.json", "anchors", 1, "wall_ns", by=lambda ns: ns - 400 * MS),
        ),
        "the parent's spans: rank 0 exited and the launcher shut down 0.37 s after the parent had ended",
    ),
    Mutation(
        "spark-submit was run 1.5 s later, with the first clock anchor",
        "own-run",
        both(
            changed("evidence/window.json", "exec_ns", by=lambda ns: ns + 1500 * MS),
            changed("evidence/window.json", "started_ns", by=lambda ns: ns + 1500 * MS),
            changed("evidence/window.json", "anchors", 0, "monotonic_ns", by=lambda ns: ns + 1500 * MS),
            changed("evidence/window.json", "anchors", 0, "wall_ns", by=lambda ns: ns + 1500 * MS),
        ),
        "driver-jvm.log: its JVM was up 1.14 s before it was run, and had collected garbage before",
    ),
    Mutation(
        "a batch has 200 samples, in the job and in the done-markers",
        "quick-run",
        both(
            changed("evidence/job.json", "batch_size", by=lambda _: 200),
            marker(0, lambda found: found | {"samples": 6000}),
            marker(1, lambda found: found | {"samples": 6000}),
        ),
        "a step takes a block of 83,800 bytes, 838 a record; Spark's event log has 6,000 records read",
    ),
    Mutation(
        "a rank had 16 cores, by its done-marker and by the sampler",
        "sampled-run",
        both(
            marker(0, lambda found: found | {"machine": found["machine"] | {"cores": 16}}),
            marker(1, lambda found: found | {"machine": found["machine"] | {"cores": 16}}),
            replaced("evidence/resources.jsonl", r'"cores":2,', '"cores":16,'),
        ),
        "resources.jsonl: busy and idle time of the machine grow by 1 s in each 0.5 s, as 2 cores do",
    ),
    Mutation(
        "the test accuracy is 0.9985",
        "seen-run",
        marker(0, lambda found: found | {"test": found["test"] | {"accuracy": 0.9985}}),
        "rank 0 wrote 876 bytes of done-marker, by its span and by the DataNode; this one has 878",
    ),
    Mutation(
        "the last loss is 0.1177, by both ranks",
        "sampled-run",
        replaced("evidence/markers.json", r"0\.5177327990531921", "0.1177327990531921", 0),
        "both ranks' instant `epoch done`: the mean loss is 0.8819, that of these losses 0.8686",
    ),
)
