"""Edits of what dlobd's own recorder wrote: spans, instants, processes, and readings of the kernel's counters."""

from __future__ import annotations

from collections.abc import Callable

from dlobd.bundle import files
from tests.mutations import span_edits
from tests.mutations.edits import Edit, both, changed, without_lines
from tests.mutations.mutation import Mutation
from tests.mutations.span_edits import Line

MS = 1_000_000
S = 1_000 * MS

DRIVER = "spans/driver/*.jsonl"

SAMPLED = "sampled-run"
SAMPLED_CHIEF = "spans/*/spans-4706-*.jsonl"
SAMPLED_TRAINERS = "spans/*/spans-4[67][09][06]-*.jsonl"
SAMPLED_FEEDERS = "spans/*/spans-46[67][17]-*.jsonl"

SEEN = "seen-run"
SEEN_CHIEF = "spans/*/spans-22356-*.jsonl"
SEEN_WORKER = "spans/*/spans-22355-*.jsonl"
SEEN_LAST_DAEMON = "spans/*/spans-22194-*.jsonl"


def moved(name: str, *chosen: str | int, begin: int = 0, end: int = 0) -> Edit:
    """Moves begins and ends of spans, which are chosen by name or by number, in one line or in two."""

    def move(line: Line) -> Line:
        if line["k"] == "s":
            return line | {"t": line["t"] + begin, "d": line["d"] + end - begin}
        return line | {"t": line["t"] + (begin if line["k"] == "b" else end)}

    def edit(lines: list[Line]) -> list[Line]:
        spans = [line for line in lines if line["k"] in ("b", "s")]
        ids = {line["i"] for line in spans if line["n"] in chosen or line["i"] in chosen}
        return [move(line) if line.get("i") in ids else line for line in lines]

    return span_edits.edited(name, edit)


def polled(name: str, span: str, cause: str, period_ns: int) -> Edit:
    """Names another cause of waits, whether their spans are one line or two."""

    def change(line: Line) -> Line:
        if "w" not in line:
            return line
        return line | {"w": line["w"] | {"cause": cause, "cause_period_ns": period_ns}}

    return span_edits.of_spans(name, [span], change)


def without_instants(name: str, instant: str) -> Edit:
    """Removes the instants of a name."""
    return span_edits.of_kind(name, "i", lambda line: None if line["n"] == instant else line)


def without_main_thread(name: str, first_ns: int, last_ns: int) -> Edit:
    """Removes the main thread's spans that begin in that time; the others are numbered anew."""

    def edit(lines: list[Line]) -> list[Line | None]:
        spans = [line for line in lines if line["k"] in ("b", "s") and "th" not in line]
        return span_edits.without_ids(lines, {line["i"] for line in spans if first_ns <= line["t"] <= last_ns})

    return span_edits.edited(name, edit)


def halved(name: str, first_ns: int, last_ns: int) -> Edit:
    """Lets all that happened in that time happen in the first half of it."""

    def half(line: Line) -> Line:
        if not first_ns <= line.get("t", 0) <= last_ns:
            return line
        shorter = {"d": line["d"] // 2} if "d" in line else {}
        return line | {"t": first_ns + (line["t"] - first_ns) // 2} | shorter

    return span_edits.edited(name, lambda lines: [half(line) for line in lines])


def with_exchanges(name: str) -> Edit:
    """Adds to each step an exchange that fills its second half."""

    def edit(lines: list[Line]) -> list[Line]:
        new: list[Line] = []
        for line in lines:
            new.append(line)
            if line["k"] == "s" and line["n"] == "step":
                inner = {"k": "s", "i": 1000 + len(new), "p": line["i"], "l": "channel", "n": "exchange"}
                new.append(inner | {"t": line["t"] + line["d"] // 2, "d": line["d"] // 2})
        return new

    return span_edits.edited(name, edit)


def counted(name: str, change: Callable[[int, int], list[int]]) -> Edit:
    """Changes what the kernel counted of main threads: time on a core, and waiting for one."""
    return span_edits.of_kind(name, "u", lambda line: line | {"main": change(*line["main"])})


def with_role(name: str, role: str) -> Edit:
    """Gives the processes of span files another role."""
    return span_edits.of_kind(name, "process", lambda line: line | {"role": role})


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "both ranks had imported TensorFlow a second sooner",
        SAMPLED,
        both(
            moved(SAMPLED_TRAINERS, "import tensorflow", end=-S),
            span_edits.instant(SAMPLED_TRAINERS, "TensorFlow imported", -S),
            moved(SAMPLED_TRAINERS, "join ranks", begin=-S),
        ),
        "the instants `transport`: the interfaces were read (`before`) right after the import, a second later",
    ),
    Mutation(
        "the chief was not the last to import TensorFlow",
        SEEN,
        both(
            moved(SEEN_CHIEF, "import tensorflow", end=-3 * S),
            span_edits.instant(SEEN_CHIEF, "TensorFlow imported", -3 * S),
            moved(SEEN_CHIEF, "join ranks", begin=-3 * S),
        ),
        "the chief's `u` lines: its main thread computed and queued on in those 3 s; `transport` was read after them",
    ),
    Mutation(
        "finding the input splits was work of HDFS",
        SEEN,
        span_edits.with_layer(DRIVER, "hdfs", "input splits"),
        "the driver's log: in these 2.88 s it called the NameNode twice, for 17 and 127 ms",
    ),
    Mutation(
        "the first checkpoint was stored 0.4 s sooner",
        SEEN,
        moved(SEEN_CHIEF, 73, 75, end=-400 * MS),
        "the NameNode's log: ckpt-15.data was closed at 18221203880233, after the new end of its write",
    ),
    Mutation(
        "the stored model was evaluated 0.4 s sooner",
        SEEN,
        span_edits.instant(SEEN_CHIEF, "evaluated", -400 * MS),
        "the NameNode's audit log and the span `open`: the test set was opened after that; `evaluate` ends later",
    ),
    Mutation(
        "training began 0.15 s later on both ranks",
        SAMPLED,
        span_edits.instant(SAMPLED_TRAINERS, "first batch", 150 * MS),
        "the spans `first step` begin before it, and the done-markers' `loop_ns` is 150 ms longer",
    ),
    Mutation(
        "the last fourteen steps of both ranks took half as long",
        SAMPLED,
        halved(SAMPLED_TRAINERS, 14731929500000, 14731993815000),
        "the done-markers' `loop_ns` is 32 ms longer, and for as long nothing happens before the last checkpoint",
    ),
    Mutation(
        "only the last step wrote a checkpoint",
        SAMPLED,
        both(
            without_main_thread(SAMPLED_CHIEF, 14730981818290, 14731924225272),
            without_lines("logs/daemons/namenode*.log", "ckpt-15"),
            without_lines("logs/daemons/datanode-*.log", "blk_107374186[78]_"),
            changed(files.JOB, "checkpoint_every_steps", by=lambda steps: 2 * steps),
            changed(files.RUN, "configuration", "checkpoint_every_steps", by=lambda steps: 2 * steps),
        ),
        "rank 1's step 15 took 0.94 s; HDFS's blocks 1073741867 and ...868 are missing; `cost` counted 7 more spans",
    ),
    Mutation(
        "the trainers' main threads were on a core for three times as long",
        SEEN,
        counted("spans/*/spans-2235[56]-*.jsonl", lambda on, waiting: [3 * on, waiting]),
        "the same lines' `cpu`, the process's CPU clock, and `threads`, the sum over all its threads",
    ),
    Mutation(
        "main threads hardly waited for a core",
        SEEN,
        counted("spans/*/*.jsonl", lambda on, waiting: [on, waiting // 10]),
        "the daemons 22185 and 22194 have one thread, and `threads` has ten times the waiting; noise.json has load 13",
    ),
    Mutation(
        "rank 1 was the chief and rank 0 the worker",
        SEEN,
        both(with_role(SEEN_CHIEF, "worker"), with_role(SEEN_WORKER, "chief")),
        "their instants `transport` have their ranks, markers.json has rank 0 as the chief; spans write .rank-N.json",
    ),
    Mutation(
        "half of each step was the exchange of gradients",
        SAMPLED,
        with_exchanges(SAMPLED_TRAINERS),
        "job.json: exchange tf-ring lies in the step; nothing was packed or on the wire; `cost` counted fewer spans",
    ),
    Mutation(
        "the ranks' reservations waited for a poll of one second",
        SAMPLED,
        both(
            moved(SAMPLED_FEEDERS, "register reservation", begin=-500 * MS, end=-500 * MS),
            moved(SAMPLED_FEEDERS, "await reservations", begin=-500 * MS),
            polled(SAMPLED_FEEDERS, "await reservations", "TensorFlowOnSpark reservation poll (1 s)", S),
            polled(DRIVER, "await reservations", "TensorFlowOnSpark reservation poll (1 s)", S),
        ),
        "worker 4671 started (/proc, resources.jsonl) after it registered, and both had no TFManager yet",
    ),
    Mutation(
        "the driver slept while the ranks had long been done",
        SEEN,
        both(
            span_edits.with_wait(DRIVER, "await trainers", waits_for=[]),
            without_instants(DRIVER, "rank is done"),
        ),
        "rank 0 told the driver (`tell driver`, 18225036751184) 4 ms before the wait's end, and wrote files until then",
    ),
    Mutation(
        "the last executor's Python was up two seconds sooner",
        SEEN,
        both(
            moved(SEEN_LAST_DAEMON, "import pyspark", end=-2 * S),
            span_edits.instant(SEEN_LAST_DAEMON, "python daemon up", -2 * S),
        ),
        "executor 2's log: boot = 5730 ms; the daemon's first anchor and `u` line, written at its import's end",
    ),
    Mutation(
        "importing pyspark was the user's own time",
        "own-run",
        span_edits.with_layer(DRIVER, "user", "import pyspark"),
        "the executors' span files, where the same span is Spark's; it imports Spark's package, by its name",
    ),
    Mutation(
        "native ranks stored their model in HDFS",
        "native-run",
        span_edits.with_layer(
            "spans/rank-*/*.jsonl", "hdfs", "checkpoint", "save model", "write checkpoint", "write model"
        ),
        "job.json: fs_uri is file:// and there is no scheduler; the paths are local; no daemon left a log",
    ),
    Mutation(
        "rank 0 exited 0.65 s sooner",
        "native-run",
        span_edits.of_kind(
            DRIVER, "i", lambda line: line | {"t": line["t"] - 650 * MS} if line.get("a") == {"rank": 0} else line
        ),
        "rank 0's own file: after that it wrote its done-marker, and read its last anchor at 1901414571478",
    ),
    Mutation(
        "nobody saw a trainer die",
        "killed-trainer",
        without_instants("spans/*/spans-14069-*.jsonl", "trainer died"),
        "the file of trainer 14117 breaks off in open spans at 5051148072559; rank 0 lost its peer 0.4 s later",
    ),
    Mutation(
        "the feed job was all the driver's own work",
        "quick-run",
        span_edits.with_wait(DRIVER, "feed job", waits_for=None),
        "the trainers' spans: they imported TensorFlow and trained meanwhile; the executors' logs of stage 1's tasks",
    ),
)
