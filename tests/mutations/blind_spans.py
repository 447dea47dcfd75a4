"""Edits of span files, chosen by what would improve a figure, without knowledge of what looks for them."""

from __future__ import annotations

from dlobd.bundle import files
from tests.mutations import span_edits
from tests.mutations.edits import both, changed, replaced, without, without_lines
from tests.mutations.mutation import Mutation
from tests.mutations.span_edits import begun, ended, instant, of_kind, removed, with_layer, with_wait

CHIEF, WORKER = "spans/*_000003/spans-22956-*.jsonl", "spans/*_000002/spans-22969-*.jsonl"
RANKS = "spans/*/spans-229[56][69]-*.jsonl"
START_TASK = "spans/*_000003/spans-22937-*.jsonl"
DRIVER = "spans/driver/*.jsonl"
ALL = "spans/*/*.jsonl"

FIRST_BATCH_NS, LAST_STEP_NS = 1_900_168_994_967, 1_900_739_235_461
"""native-run's training loop: the first batch of the earlier rank, the last step of the later one."""
IMPORT_BEGUN_NS, IMPORT_SAVED_NS = 10_045_000_000_000, 3_000_000_000
"""A point in quick-run while its ranks import TensorFlow, and how much less they are to take for it."""


def _faster_loop(at_ns: int) -> int:
    """Twice the speed from the first batch to the last step; what follows moves up."""
    inside = min(max(at_ns - FIRST_BATCH_NS, 0), LAST_STEP_NS - FIRST_BATCH_NS)
    return at_ns - inside // 2


def _shorter_import(at_ns: int) -> int:
    return at_ns - IMPORT_SAVED_NS if at_ns > IMPORT_BEGUN_NS + IMPORT_SAVED_NS else min(at_ns, IMPORT_BEGUN_NS)


MUTATIONS = (
    Mutation(
        "the worker's trainer recorded nothing",
        "quick-run",
        without(WORKER),
        "the worker's done-marker, the span that forked it, and the bytes that its feeder put",
    ),
    Mutation(
        "a start task recorded nothing",
        "quick-run",
        without(START_TASK),
        "the trainer that it forked, and the executor's log of the task",
    ),
    Mutation(
        "the loop runs at twice its speed, and all that follows moves up",
        "native-run",
        span_edits.times("spans/rank-*/*", _faster_loop),
        "the wall clock in each rank's last anchor, and the parent, which saw the ranks exit later",
    ),
    Mutation(
        "three seconds of importing TensorFlow are cut out of every monotonic clock",
        "quick-run",
        both(
            span_edits.times(ALL, _shorter_import),
            replaced("logs/**/*", r"^(\[?)(\d{9,})", lambda at: f"{at[1]}{_shorter_import(int(at[2]))}", count=0),
            replaced(files.DRIVER_JVM_LOG, r"^\[(\d+)", lambda at: f"[{_shorter_import(int(at[1]))}", count=0),
            changed(files.WINDOW, "exit_ns", by=_shorter_import),
            changed(files.WINDOW, "anchors", 1, "monotonic_ns", by=_shorter_import),
            changed(files.RM_APPLICATION, "memorySeconds", by=lambda mb_s: mb_s - 3 * (896 + 2 * 1792)),
        ),
        "the wall clock in each log line, each anchor, the event log and the ResourceManager's record",
    ),
    Mutation(
        "the last step was done 0.4 s earlier",
        "quick-run",
        instant(RANKS, "last step done", -400_000_000),
        "the steps' own spans end later",
    ),
    Mutation(
        "the worker's steps end 2 ms earlier",
        "quick-run",
        ended(WORKER, "step", -2_000_000),
        "the chief's member of each of the same collectives, which ends with it",
    ),
    Mutation(
        "importing TensorFlow is the user's code",
        "quick-run",
        with_layer(RANKS, "user", "import tensorflow"),
        "a span of that name belongs to TensorFlow",
    ),
    Mutation(
        "importing TensorFlow is connecting to the queue",
        "quick-run",
        both(
            ended(RANKS, "connect to queue", 2_500_000_000),
            begun(RANKS, "trainer", 2_500_000_000),
            begun(RANKS, "import tensorflow", 2_500_000_000),
        ),
        "the anchor that each rank wrote right after it had connected",
    ),
    Mutation(
        "stopping Spark ends half a second earlier",
        "quick-run",
        both(
            ended(DRIVER, "SparkContext.stop", -500_000_000),
            ended(DRIVER, "driver", -500_000_000),
            instant(DRIVER, "SparkContext stopped", -500_000_000),
        ),
        "the anchor that the driver wrote when it had ended, and its JVM, which exits long after that",
    ),
    Mutation(
        "the driver does not wait for its trainers",
        "quick-run",
        both(
            with_wait(DRIVER, "feed job", waits_for=None),
            with_wait(DRIVER, "await trainers", waits_for=None, cause=None, cause_period_ns=None),
        ),
        "the names of both spans, and the trainers, which worked in that time",
    ),
    Mutation(
        "no checkpoint was written",
        "quick-run",
        both(
            removed(CHIEF, "write checkpoint"),
            without_lines("logs/daemons/namenode-audit.log", "cmd=create\tsrc=.*/checkpoints/"),
        ),
        "the DataNodes' trace has the blocks, the NameNode refused to close the files, and job.json asks for them",
    ),
    Mutation(
        "half of the stored model's bytes",
        "quick-run",
        replaced(CHIEF, r'(/model/variables/\S*","bytes":)31645', r"\g<1>15822"),
        "the DataNodes' trace of the same file, and the bytes that were read back",
    ),
    Mutation(
        "the two trainers change their roles",
        "quick-run",
        both(
            replaced(CHIEF, r'"role":"chief"', '"role":"worker"', count=0),
            replaced(WORKER, r'"role":"worker"', '"role":"chief"', count=0),
        ),
        "the done-markers that each wrote, and the checkpoints, which the chief writes",
    ),
    Mutation(
        "rank 0 waits for its place instead of importing TensorFlow",
        "native-run",
        both(
            ended("spans/rank-0/*", "import tensorflow", -4_000_000_000),
            begun("spans/rank-0/*", "await place", -4_000_000_000),
        ),
        "the parent had told the ranks their places long before, and rank 1 took 4 s longer for the same import",
    ),
    Mutation(
        "ranks are gone half a second before they are",
        "native-run",
        both(
            instant("spans/driver/*", "rank exited", -500_000_000),
            ended("spans/driver/*", "wait for ranks", -500_000_000),
        ),
        "",
    ),
    Mutation(
        "the workers unpickled the user's function, and never ran it",
        "own-run",
        both(
            with_layer("spans/container_*/*", "spark", "user code"),
            replaced("spans/container_*/*", '"n":"user code"', '"n":"unpickle function"', count=0),
        ),
        "every task unpickles twice then, and has the number of a task that ran code",
    ),
    Mutation(
        "the script's calls into the JVM are its own code",
        "own-run",
        of_kind(DRIVER, "b", lambda line: line | {"l": "user"} if line["n"].startswith("JVM: ") else line),
        "the spans say that they are calls into the JVM, which belong to Spark",
    ),
    Mutation(
        "the driver of a script recorded nothing",
        "own-run",
        without(DRIVER),
        "the driver's log has the jobs that it started",
    ),
    Mutation(
        "nobody saw the trainer die",
        "killed-trainer",
        of_kind("spans/*/*", "i", lambda line: None if line["n"] == "trainer died" else line),
        "that trainer's spans have no end, and the other rank's error says that its peer is gone",
    ),
)
