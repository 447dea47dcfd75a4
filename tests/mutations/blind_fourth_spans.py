"""Blind mutations of span files, done-markers beside them, and samples: what a vendor would like to be true."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.mutations.edits import Edit, both, changed, marker, replaced
from tests.mutations.mutation import Mutation
from tests.mutations.span_edits import Line, edited, instant, of_kind, times, with_layer, with_wait

MS = 1_000_000
DRIVER = "spans/driver/*"
SAMPLES = "evidence/resources.jsonl"
QUICK_CHIEF, QUICK_WORKER = "spans/*_000003/spans-22956-*", "spans/*_000002/spans-22969-*"
SAMPLED_CHIEF, SAMPLED_WORKER = "spans/*_000002/spans-4706-*", "spans/*_000003/spans-4690-*"
SEEN_CHIEF, SEEN_WORKER = "spans/*_000003/spans-22356-*", "spans/*_000002/spans-22355-*"
NATIVE_CHIEF = "spans/rank-0/*"
KILLED_CHIEF = "spans/*_000002/spans-14092-*"
OWN_WORKER = "spans/*_000002/spans-3992-*"


def at(files: str, exact: Iterable[int], by_ns: int) -> Edit:
    """Moves the begins, ends and instants that are at these times; what begins with its length keeps its end."""
    wanted = set(exact)

    def change(line: Line) -> Line:
        if line.get("t") not in wanted:
            return line
        return line | {"t": line["t"] + by_ns} | ({"d": line["d"] - by_ns} if "d" in line else {})

    return edited(files, lambda lines: [change(line) for line in lines])


def earlier_between(files: str, first_ns: int, last_ns: int, by_ns: int) -> Edit:
    """Moves whatever begins or ends in a stretch; whole spans of one line move as they are."""

    def change(line: Line) -> Line:
        return line | {"t": line["t"] - by_ns} if first_ns <= line.get("t", 0) <= last_ns else line

    return edited(files, lambda lines: [change(line) for line in lines])


def squeezed(first_ns: int, last_ns: int, share: float) -> Callable[[int], int]:
    """A stretch of time takes this share of its length; what comes later moves up to it."""
    saved = round((last_ns - first_ns) * (1 - share))

    def move(t: int) -> int:
        return t if t < first_ns else first_ns + round((t - first_ns) * share) if t < last_ns else t - saved

    return move


def samples(change: Callable[[Line, Line], Line]) -> Edit:
    """Changes the samples of the machine, each with the first one beside it."""

    def edit(lines: list[Line]) -> list[Line]:
        first = next(line for line in lines if line["k"] == "sample")
        return [change(line, first) if line["k"] == "sample" else line for line in lines]

    return edited(SAMPLES, edit)


def half_busy(line: Line, first: Line) -> Line:
    """Half of the busy time is idle."""
    busy, idle, stolen = line["cpu"]
    less = (busy - first["cpu"][0]) // 2
    return line | {"cpu": [busy - less, idle + less, stolen]}


def still_loopback(line: Line, first: Line) -> Line:
    """Nothing goes over loopback."""
    return line | {"net": line["net"] | {"lo": first["net"]["lo"]}}


def grown(name: str, factor: int) -> Callable[[Line], Line]:
    """A reading of a process's own, of which one time on a core is larger."""

    def change(line: Line) -> Line:
        if isinstance(line[name], int):
            return line | {name: line[name] * factor}
        return line | {name: [line[name][0] * factor, line[name][1]]}

    return change


def by_rdma(line: Line) -> Line:
    """A rank's transport: an RDMA port counted the bytes, and there is no connection between the ranks."""
    if line["n"] != "transport":
        return line
    said, port = line["a"], {"name": "mlx5_0:1", "soft": False, "link_layer": "InfiniBand", "interfaces": []}
    found = dict.fromkeys(("sent_packets", "received_packets"), 5000)
    before = port | {"counts": found | {"sent_bytes": 0, "received_bytes": 0}}
    after = port | {"counts": dict.fromkeys(found, 9000) | {"sent_bytes": 4 << 20, "received_bytes": 4 << 20}}
    counts = {"sent_messages": 60, "sent_bytes": 984238, "received_messages": 60, "received_bytes": 984238}
    traffic = {"kind": "verbs", "device": "mlx5_0:1", **counts, "put_bytes": 0, "got_bytes": 0, "lanes": []}
    left = [one for one in said["after"]["sockets"] if one["received_bytes"] > 2_000_000]
    return line | {
        "a": said
        | {"lanes": ["rc_mlx5/mlx5_0:1"], "traffic": traffic}
        | {"before": said["before"] | {"ports": [before]}}
        | {"after": said["after"] | {"ports": [after], "sockets": left}}
    }


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "both ranks took their last step 0.6 s earlier",
        "quick-run",
        instant("spans/*/*", "last step done", -600 * MS),
        "the ranks' own spans: steps, a checkpoint and its writes begin after that",
    ),
    Mutation(
        "the first checkpoint took 0.6 s less, and the loop too, by spans and done-markers of both ranks",
        "sampled-run",
        both(
            times(SAMPLED_CHIEF, squeezed(14731000000000, 14731900000000, 1 / 3)),
            times(SAMPLED_WORKER, squeezed(14731000000000, 14731900000000, 1 / 3)),
            marker(0, lambda found: found | {"loop_ns": found["loop_ns"] - 600 * MS}),
            marker(1, lambda found: found | {"loop_ns": found["loop_ns"] - 600 * MS}),
        ),
        "the DataNodes' trace: ckpt-15.index, ckpt-30, model and markers came 0.6 s after the ranks' writes",
    ),
    Mutation(
        "both ranks waited 0.6 s for their first block, since TensorFlow was there sooner",
        "quick-run",
        both(
            earlier_between(QUICK_CHIEF, 10049251911364, 10049986261035, 600 * MS),
            earlier_between(QUICK_WORKER, 10048912558913, 10049985415580, 600 * MS),
        ),
        "the feed tasks' spans: both blocks had been put into the queues 2 s before, so that no get waits",
    ),
    Mutation(
        "the driver heard 0.5 s earlier that the ranks are done",
        "seen-run",
        instant(DRIVER, "rank is done", -500 * MS),
        "the ranks' spans: they told the driver 0.5 s after it had heard it",
    ),
    Mutation(
        "the machine was half as busy",
        "sampled-run",
        samples(half_busy),
        "resources.jsonl: the run's own processes used 40 s of CPU, of 23 s that the machine was busy",
    ),
    Mutation(
        "nothing went over loopback",
        "sampled-run",
        samples(still_loopback),
        "both ranks' instant `transport`: lo counted megabytes between their two readings",
    ),
    Mutation(
        "the ranks exchanged by RDMA",
        "seen-run",
        both(
            of_kind(SEEN_CHIEF, "i", by_rdma),
            of_kind(SEEN_WORKER, "i", by_rdma),
            changed("evidence/job.json", "channel", by=lambda _: "rdma"),
        ),
        "job.json: exchange tf-ring of library tensorflow, which is gRPC over TCP; the ranks listened at 127.0.0.1",
    ),
    Mutation(
        "listing the input was HDFS's time",
        "seen-run",
        with_layer(DRIVER, "hdfs", "input splits"),
        "the driver's log: of these 2.7 s, HDFS's two calls took 0.14 s",
    ),
    Mutation(
        "a function of one's own took 0.8 s longer",
        "own-run",
        at(OWN_WORKER, [3593014910656, 3593015044182, 3593015112693], -800 * MS),
        "executor 1's log: the Python worker of task 8 says finish = 43 ms after it had its function",
    ),
    Mutation(
        "SparkContext.stop took 0.7 s less, with its instant and the driver's end",
        "quick-run",
        at(DRIVER, [10054353484299, 10054353513337, 10054353518730], -700 * MS),
        "the driver's log: SparkContext was stopped 0.2 s after that, and its trackers after that too",
    ),
    Mutation(
        "the reservation poll is a tenth of what it was",
        "killed-trainer",
        with_wait("spans/*/*", "await reservations", cause_period_ns=100 * MS),
        "the name of the same cause says sleep 1 s; both executors' waits lasted 1 and 2 whole seconds",
    ),
    Mutation(
        "decoding the 31st block took 147 ms, and awaiting it 2 ms",
        "killed-trainer",
        at(KILLED_CHIEF, [5051334535043, 5051334557853], -147 * MS),
        "the feed task's spans: it put that block 145 ms after it had been taken, and began 127 ms after",
    ),
    Mutation(
        "the slower rank had TensorFlow 0.3 s earlier, and waited to join",
        "sampled-run",
        at(SAMPLED_WORKER, [14730563723526, 14730563742278, 14730564460692], -300 * MS),
        "its own instant `transport`: the counters before it joined were read 0.3 s after it had begun to join",
    ),
    Mutation(
        "rank 0's process ended 0.7 s earlier",
        "native-run",
        at(DRIVER, [1902035175947], -700 * MS),
        "rank 0's spans: its trainer, its done-marker and its last clock anchor are later than its end",
    ),
    Mutation(
        "rank 0 trained twice as fast",
        "native-run",
        edited(
            NATIVE_CHIEF,
            lambda lines: [
                line | {"t": squeezed(1900563844107, 1900728238326, 0.5)(line["t"])} if "t" in line else line
                for line in lines
            ],
        ),
        "rank 1's spans: it entered the same collective steps up to 0.08 s after rank 0 had left them",
    ),
    Mutation(
        "rank 0's main thread was on a core for eight times as long",
        "seen-run",
        of_kind(SEEN_CHIEF, "u", grown("main", 8)),
        "the same readings: all its threads together, and its process's CPU clock, have 3.1 s, and not 22 s",
    ),
    Mutation(
        "the ranks were on a core for six times as long, by threads and by the CPU clock",
        "seen-run",
        both(
            *(of_kind(files, "u", grown(name, 6)) for files in (SEEN_CHIEF, SEEN_WORKER) for name in ("main", "cpu")),
            *(of_kind(files, "u", grown("threads", 6)) for files in (SEEN_CHIEF, SEEN_WORKER)),
        ),
        "main threads then ran and waited for longer than they lived; the containers' metrics say 31 % of CPU at p95",
    ),
    Mutation(
        "checkpoints have a hundred times the bytes",
        "quick-run",
        replaced("spans/*/*", r'(ckpt-\d+\.data[^}]*"bytes":)31596', r"\g<1>3159600", 0),
        "the DataNodes' trace: 31,596 bytes were written for each of them",
    ),
    Mutation(
        "the driver awaited its trainers for 0.5 s less, and shut down for longer",
        "quick-run",
        at(DRIVER, [10053039445751, 10053039473252], -500 * MS),
        "rank 0's spans: its evaluation ended, and its done-marker was begun, 0.42 s after the driver had seen it done",
    ),
    Mutation(
        "two epochs were trained, by the job and by both done-markers with their losses",
        "native-run",
        both(
            changed("evidence/job.json", "epochs", by=lambda _: 2),
            changed("evidence/job.json", "steps", by=lambda _: 60),
            *(
                marker(rank, lambda found: found | {"steps": 60, "samples": 6000, "losses": found["losses"] * 2})
                for rank in (0, 1)
            ),
        ),
        "both ranks' spans: 30 steps and 30 batches each; they wrote done-markers of 724 and 680 bytes",
    ),
)
