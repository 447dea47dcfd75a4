"""Edits of what others wrote: the client, daemons, Spark's JVMs, samples, markers, records and the configuration."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlobd.bundle import files
from tests.mutations.edits import Edit, both, changed, moved, replaced
from tests.mutations.mutation import Mutation

MS = 1_000_000
S = 1_000 * MS

SAMPLED = "sampled-run"
SEEN = "seen-run"

RESOURCE_MANAGER = "logs/daemons/resourcemanager.log"
PEAK_MB = 600


def sampled(change: Callable[[list[int], int], list[int]]) -> Edit:
    """Changes the machine's CPU counters in each sample; what they grew by, and for how long, starts with the first."""

    def edit(path: Path) -> None:
        file = path / files.RESOURCES
        lines = [json.loads(text) for text in file.read_text().splitlines()]
        samples = [line for line in lines if line["k"] == "sample"]
        start_ns, first = samples[0]["t"], list(samples[0]["cpu"])
        for sample in samples:
            grown = change([now - then for now, then in zip(sample["cpu"], first, strict=True)], sample["t"] - start_ns)
            sample["cpu"] = [then + more for then, more in zip(first, grown, strict=True)]
        file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))

    return edit


def capped(container: dict[str, Any]) -> dict[str, Any]:
    """A container's metrics, none of its memory's above the peak."""
    return {
        key: min(value, PEAK_MB) if key.startswith("PMem") and PEAK_MB < value < 10_000 else value
        for key, value in container.items()
    }


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "spark-submit was started 0.13 s later",
        SAMPLED,
        both(
            changed(files.WINDOW, "exec_ns", by=lambda ns: ns + 130 * MS),
            changed(files.WINDOW, "started_ns", by=lambda ns: ns + 130 * MS),
        ),
        "resources.jsonl: process 3942 started at 14709450000608; its JVM's log begins before `started_ns`; the anchor",
    ),
    Mutation(
        "spark-submit exited two seconds later",
        SEEN,
        both(
            changed(files.WINDOW, "exit_ns", by=lambda ns: ns + 2 * S),
            changed(files.WINDOW, "anchors", 1, "monotonic_ns", by=lambda ns: ns + 2 * S),
            changed(files.WINDOW, "anchors", 1, "wall_ns", by=lambda ns: ns + 2 * S),
        ),
        "RM and NM logs: dlobd asked them for their records, which it does after the exit, at 18231090387863",
    ),
    Mutation(
        "the ApplicationMaster was registered two seconds sooner",
        SEEN,
        moved(RESOURCE_MANAGER, "AM registration|LAUNCHED to RUNNING|ACCEPTED to RUNNING", -2_000 * MS),
        "the AM's log: it called registerApplicationMaster only at 18133019417826; the RM's log of its login",
    ),
    Mutation(
        "the ResourceManager allocated executors 1.5 s later",
        SEEN,
        moved(RESOURCE_MANAGER, r"^181414\d+ ", 1_500 * MS),
        "rm-app.json and the RM's summary: memorySeconds 419345 are the containers' from the old allocation on",
    ),
    Mutation(
        "the ApplicationMaster's files were localised 0.3 s sooner",
        SEEN,
        both(
            moved("logs/daemons/nodemanager-1.log", "_01_000001 transitioned from LOCALIZING to SCHEDULED", -300 * MS),
            changed(files.NM_CONTAINERS, 1, "localizationDurationMs", by=lambda ms: ms - 300),
        ),
        "the NameNode's audit log and a DataNode's trace: __spark_conf__.zip was opened and read after that",
    ),
    Mutation(
        "a NodeManager was asked for executor 2 0.2 s sooner",
        SAMPLED,
        moved("logs/daemons/nodemanager-0.log", r"^147179(?:41|49)\d+ ", -200 * MS),
        "the AM's log: it launched container 3 only at 14717817511398, after the request",
    ),
    Mutation(
        "the driver's JVM collected garbage for 0.4 s longer",
        SAMPLED,
        replaced(files.DRIVER_JVM_LOG, r"(GC\(9\) .* )6\.705ms", r"\g<1>406.705ms"),
        "the driver's log: threads logged at 14713169306985 and 14713328742354, in the pause that stops all of them",
    ),
    Mutation(
        "the training data was first touched a second sooner",
        SEEN,
        moved("logs/daemons/namenode-audit.log", "part-00000.tfrecord.*proto=rpc", -1_000 * MS),
        "executor 1's log: it called getBlockLocations at 18208879560024, after the new stamp",
    ),
    Mutation(
        "a DataNode took 0.14 s longer to send pyspark.zip to a NodeManager",
        SAMPLED,
        replaced(
            "logs/daemons/datanode-1-clienttrace.log", r"(_219, .*_1073741863_1039, .*: )4441918", r"\g<1>144441918"
        ),
        "the NameNode's audit log: that file was opened 17 ms before the transfer's end",
    ),
    Mutation(
        "submitApplication was answered half a second later",
        SEEN,
        moved(files.DRIVER_STDERR, "Response <- .*: submitApplication", 500 * MS),
        "the driver's log: the same thread had begun and ended its next call, getApplicationReport, by then",
    ),
    Mutation(
        "executor 2 was registered 0.35 s sooner",
        SAMPLED,
        moved(files.DRIVER_STDERR, r"Registered executor .* with ID 2,", -350 * MS),
        "executor 2's log: it connected to the driver at 14723771978477; the order of the driver's log",
    ),
    Mutation(
        "tasks used half the CPU time in the executors' JVMs",
        SAMPLED,
        replaced(
            files.EVENT_LOG, r'"Executor CPU Time":(\d+)', lambda m: f'"Executor CPU Time":{int(m[1]) // 2}', count=0
        ),
        "the same events' accumulables, internal.metrics.executorCpuTime",
    ),
    Mutation(
        "no executor used more than 600 MiB",
        SAMPLED,
        both(
            changed(files.COLLECTED, "metrics", "executor_peak_bytes", by=lambda _: PEAK_MB * 1024**2),
            changed(files.NM_CONTAINERS, 1, by=capped),
            changed(files.NM_CONTAINERS, 2, by=capped),
        ),
        "resources.jsonl: the trainers alone, 4690 and 4706, had 631 and 641 MiB resident, the JVMs 271 and 279 more",
    ),
    Mutation(
        "other virtual machines took a fifth of the CPU time",
        SAMPLED,
        sampled(lambda grown, ns: [grown[0], grown[1], grown[2] + 2 * ns // 5]),
        "the same counters: busy, idle and stolen are together more than two cores have; noise.json saw no steal",
    ),
    Mutation(
        "the machine was busy for half as long",
        SAMPLED,
        sampled(lambda grown, _: [grown[0] // 2, grown[1] + grown[0] - grown[0] // 2, grown[2]]),
        "the same samples: the run's processes used 40 s of CPU time, more than the 23 s that were busy",
    ),
    Mutation(
        "the training files were not in memory",
        SAMPLED,
        both(
            changed(files.PAGE_CACHE, "resident_bytes", by=lambda _: 0),
            changed(files.PAGE_CACHE, "before_resident_bytes", by=lambda _: 0),
        ),
        "`asked` is warm; 2 of their 5 MB were read from the disk in the run; DataNodes sent each in 1 to 2 ms",
    ),
    Mutation(
        "the model was right in 93.25 percent",
        SEEN,
        changed(files.MARKERS, "rank-0.json", by=lambda text: text.replace('"accuracy": 0.83}', '"accuracy": 0.9325}')),
        "the marker has 878 bytes now, of which rank 0's span and the DataNode's trace saw 876",
    ),
    Mutation(
        "a step had twice as many samples",
        SAMPLED,
        both(
            changed(files.JOB, "batch_size", by=lambda samples: 2 * samples),
            changed(files.RUN, "configuration", "batch_size", by=lambda samples: 2 * samples),
        ),
        "the done-markers: 3000 samples in 30 steps; the feed's blocks are 83800 bytes, 100 samples each",
    ),
    Mutation(
        "the run with the killed trainer ended well",
        "killed-trainer",
        changed(files.WINDOW, "exit_code", by=lambda _: 0),
        "the driver's stdout and its instant `job failed`; markers.json; `trainer died`",
    ),
    Mutation(
        "Spark began to close its event log 0.3 s later",
        SAMPLED,
        moved(files.DRIVER_STDERR, "Stopping event writer", 300 * MS),
        "the DataNode's trace and the NameNode's log: the event log's block was finished at 14734698185027",
    ),
)
