"""Tables of a run, which the terminal and the page show alike: a title, typed columns, rows of plain values, a note.

Units of columns: text; s and ms are integers of nanoseconds, shown in seconds and milliseconds; mb is an integer of
bytes, shown in MB (10^6 bytes); share is of 1, shown in percent; number. A value of None is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dlobd.record.resources import ProcessUse, ThreadUse
from dlobd.record.run import Run
from dlobd.report import text
from dlobd.report.summary import SAMPLES_FOR_P99, Summary, metrics, title
from dlobd.schema import Event
from dlobd.spans import INSTANTS

Unit = Literal["text", "s", "ms", "mb", "share", "number"]
Cell = object
Row = Sequence[Cell]

MOST_ROWS = 40
"""Longest list of stages and of imports; run.json has all."""

NS_PER_HOUR = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head, with the unit where the values have one, and the kind of its values.

    page_only: the terminal leaves it out, because a line has only 79 columns.
    """

    name: str
    unit: Unit = "text"
    page_only: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `totals` are closing rows of the terminal, which the sortable table of the page does not have."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str = ""
    totals: Sequence[Row] = ()

    def to_json(self) -> dict[str, object]:
        """Return the table as the page's data."""
        columns = [{"name": column.name, "kind": column.unit} for column in self.columns]
        return {"title": self.title, "columns": columns, "rows": [list(row) for row in self.rows], "note": self.note}


def _columns(unit: Unit, *names: str) -> list[Column]:
    return [Column(name, unit) for name in names]


def page_tables(run: Run, found: Summary) -> list[Table]:
    """Return all tables of the page's section of tables that have a row."""
    every = [
        layers(found),
        evidence(found),
        largest(found),
        causes(found),
        hidden(found),
        core_waits(run),
        hdfs(run),
        layer_use(run),
        role_use(run),
        process_use(run),
        thread_use(run),
        spark_metrics(run),
        stages(run),
        imports(run),
        throughput(run),
        metric_values(run),
        setup(run),
    ]
    return [table for table in every if table.rows]


# ---- the wall


def layers(found: Summary) -> Table:
    """Return the split of the wall, with the bounds of each layer."""
    columns = [Column("layer"), Column("seconds", "s"), Column("% of the wall", "share"),
               *_columns("s", "lowest, s", "highest, s", "unexplained, s")]  # fmt: skip
    parts = (*found.parts, *((found.unattributed,) if found.unattributed else ()))
    rows = [(part.title, part.ns, part.share, part.lo_ns, part.hi_ns, part.unexplained_ns) for part in parts]
    total_ns = sum(part.ns for part in parts)
    total = ("total", total_ns, found.share(total_ns), "", "", found.unknown_ns)
    notes = ["The bounds of layers depend on each other; do not add them up."]
    if small := [part.title for part in found.parts if part.below_resolution]:
        notes.append(f"Shorter than the uncertainty of its boundaries, use the highest: {', '.join(small)}.")
    return Table("Where the wall time went", columns, rows, " ".join(notes), [total])


def evidence(found: Summary) -> Table:
    """Return the quality of the evidence of each layer; a row sums to the layer's seconds."""
    names = "measured, s", "between marks, s", "named waits, s", "unexplained, s"
    rows = [
        (part.title, part.measured_ns, part.between_marks_ns, part.named_wait_ns, part.unexplained_ns)
        for part in found.parts
    ]
    if found.unattributed:
        rows.append((found.unattributed.title, 0, 0, 0, found.unattributed.ns))
    seen = found.seen
    sums = seen.measured_ns, seen.between_marks_ns, seen.named_wait_ns, found.unknown_ns
    shares = [f"{text.percent(found.share(ns))} %" for ns in sums]
    return Table("Quality of the evidence", [Column("layer"), *_columns("s", *names)], rows,
                 totals=[("total", *sums), ("of the wall", *shares)])  # fmt: skip


def core_waits(run: Run) -> Table:
    """Return the states of the threads that the wall waited for."""
    names = "on a core, s", "waiting for a core, s", "at least, s", "at most, s", "blocked, s", "unknown, s"
    waits = run.core_waits
    rows, totals, note = [], [], ""
    if waits:
        every = [(title(row.layer), row) for row in waits.layers]
        for name, row in (*every, ("total", waits.whole)):
            lengths = row.on_core_ns, row.waiting_ns, row.waiting_lo_ns, row.waiting_hi_ns, row.blocked_ns
            known = row.unknown_ns < row.ns
            rows.append((name, *(ns if known else None for ns in lengths), row.unknown_ns))
        totals = [rows.pop()]
        note = " ".join(f"unknown, {text.seconds(ns)} s: {why}." for why, ns in waits.unknown)
    return Table("Thread state while the time passed", [Column("layer"), *_columns("s", *names)], rows, note, totals)


PART = [Column("layer"), Column("seconds", "s"), Column("% of the wall", "share"), Column("name")]


def largest(found: Summary) -> Table:
    """Return the longest span names."""
    rows = [(part.title, part.ns, found.share(part.ns), part.name) for part in found.largest]
    return Table("Largest parts", PART, rows)


def causes(found: Summary) -> Table:
    """Return the named causes of waiting."""
    rows = [(part.title, part.ns, found.share(part.ns), part.name, part.length) for part in found.causes]
    return Table("Named causes, contained in the layers", [*PART, Column("length")], rows)


def hidden(found: Summary) -> Table:
    """Return the time of layers that other layers contain, as bounds."""
    columns = [Column("layer"), Column("inside"), *_columns("s", "lowest, s", "highest, s"),
               *_columns("text", "source of the lowest", "source of the highest")]  # fmt: skip
    rows = [
        (title(part.layer), title(part.inside), part.lo_ns, part.hi_ns, part.lo_source, part.hi_source)
        for part in found.hidden
    ]
    return Table("Hidden inside another layer, known only as an interval", columns, rows)


def not_measured(run: Run) -> Table:
    """Return the layers without a measurement. A layer without a container took no part in the run."""
    rows = [(title(row.layer), title(row.inside) if row.inside else "", row.why) for row in run.not_measured]
    return Table("Not measured", _columns("text", "layer", "inside", "reason"), rows)


def corrections(found: Summary) -> Table:
    """Return the corrections of the evidence, by kind."""
    columns = [Column("kind"), Column("seconds", "s"), Column("count", "number"), Column("largest, span"),
               Column("largest, s", "s")]  # fmt: skip
    rows = [(row.kind, row.ns, row.count, row.largest.span, row.largest.ns) for row in found.corrections]
    return Table("Corrections of the evidence", columns, rows)


def events(run: Run, name: str, happened: Sequence[Event]) -> Table:
    """Return the events of start-up or of teardown, in their order."""
    columns = [Column("event"), Column("at, s", "s"), Column("since the previous, s"),
               Column("unlocks", page_only=True), *_columns("text", "source", "resolution", "clock")]  # fmt: skip
    rows = []
    previous = None
    for event in happened:
        zero_ns = run.window.start_ns if run.window else happened[0].at_ns
        kind = INSTANTS.get(event.event)
        unlocks = kind.unlocks if kind else None
        rows.append((event.event, event.at_ns - zero_ns, _since(previous, event), unlocks, event.source,
                     text.short(event.resolution_ns), event.clock))  # fmt: skip
        previous = event
    return Table(name, columns, rows, f"Seconds since {_start(run)}.")


def _start(run: Run) -> str:
    return run.window.name.partition(" -> ")[0] if run.window else "the first event"


def _since(previous: Event | None, event: Event) -> str:
    """Format the distance of two events; if neither order nor distance is certain, its bound."""
    if previous is None:
        return ""
    ns = event.at_ns - previous.at_ns
    resolution_ns = max(previous.resolution_ns, event.resolution_ns)
    return f"< {text.short(resolution_ns)}" if abs(ns) < resolution_ns else f"{ns / 1e9:+.3f}"


# ---- the job


def hdfs(run: Run) -> Table:
    """Return the use of HDFS by purpose."""
    columns = [Column("purpose"), Column("calls", "number"), Column("MB", "mb"),
               *_columns("s", "seconds", "lowest, s", "highest, s"), *_columns("text", "from", "to")]  # fmt: skip
    rows = [
        (row.purpose, row.operations, row.bytes, row.ns, row.ns if row.lo_ns is None else row.lo_ns,
         row.ns if row.hi_ns is None else row.hi_ns, row.source_begin, row.source_end)
        for row in run.hdfs
    ]  # fmt: skip
    return Table("HDFS by purpose", columns, rows, "Of all lanes together: the sum can exceed the layer.")


def ranks(run: Run) -> Table:
    """Return the steps of ranks; of a user's script, the seconds of its main function."""
    if run.own:
        own = [Column("rank"), *_columns("s", "main function, s", "of these in DataFeed.next_batch, s")]
        return Table("Ranks", own, [(rank.name, rank.main_ns, rank.feed_wait_ns) for rank in run.ranks])
    columns = [Column("rank"), Column("steps", "number"), *_columns("ms", "p50, ms", "p99, ms", "max, ms"),
               *_columns("s", "first step, s", "waited for the feed, s")]  # fmt: skip
    few = any((rank.steps or 0) < SAMPLES_FOR_P99 for rank in run.ranks)
    rows = [
        (
            rank.name,
            rank.steps,
            rank.step_p50_ns,
            rank.step_p99_ns if (rank.steps or 0) >= SAMPLES_FOR_P99 else None,
            rank.step_max_ns,
            rank.first_step_ns,
            rank.feed_wait_ns,
        )
        for rank in run.ranks
    ]
    note = f"p99 needs {SAMPLES_FOR_P99} steps; with fewer steps only the maximum is known." * few
    return Table("Ranks", columns, rows, note)


def exchange(run: Run) -> Table:
    """Return the parts of each rank's gradient exchange."""
    columns = [Column("rank"), Column("calls", "number"), Column("MB", "mb"),
               *(Column(name, "s", page_only=True) for name in ("compute, s", "exchange, s")),
               *_columns("s", "pack, s", "wait, s", "wire, s", "unpack, s"), Column("overlap", "number")]  # fmt: skip
    rows = [
        (f"{use.role} {use.index}", use.calls, use.bytes, use.compute_ns, use.exchange_ns, use.pack_ns,
         use.wait_for_peers_ns, use.wire_ns, use.unpack_ns, use.overlap)
        for use in run.exchange
    ]  # fmt: skip
    return Table("Gradient exchange, all steps together", columns, rows)


def throughput(run: Run) -> Table:
    """Return percentiles of the length of steps, without the first ones."""
    columns = [Column("milliseconds"), *_columns("ms", "p50", "p90", "p95", "p99", "max")]
    rows = [
        (name, times.p50_ns, times.p90_ns, times.p95_ns, times.p99_ns, times.max_ns)
        for name, times in (
            (("step", run.throughput.step), ("step with input", run.throughput.step_with_input))
            if run.throughput
            else ()
        )
    ]
    return Table("Length of steps", columns, rows)


def epochs(run: Run) -> Table:
    """Return epochs with loss and accuracy, on two clocks."""
    columns = [Column("epoch", "number"), Column("seconds", "s"), *_columns("number", "mean loss", "test accuracy"),
               *_columns("s", "evaluation, s", "known, s from submit", "known, s from the first touch of the data"),
               ]  # fmt: skip
    rows = [
        (row.epoch, row.ns, row.loss, row.test_accuracy, row.evaluation_ns, run.from_submit_ns(row),
         run.from_first_touch_ns(row))
        for row in run.epochs
    ]  # fmt: skip
    return Table("Epochs", columns, rows)


def metric_values(run: Run) -> Table:
    """Return the job's metrics in the units that the suffixes of their names give."""
    rows: list[Row] = []
    for name, value in metrics(run):
        if value is not None and name.endswith("_ns"):
            rows.append((name.removesuffix("_ns"), round(value / 1e9, 3), "s"))
        elif value is not None and name.endswith("_bytes"):
            rows.append((name.removesuffix("_bytes"), round(value / 1e6, 1), "MB"))
        else:
            rows.append((name, value, ""))
    return Table("Metrics", [Column("metric"), Column("value", "number"), Column("unit")], rows)


def setup(run: Run) -> Table:
    """Return the lengths of steps outside of the window."""
    rows = [(key.removesuffix("_ns"), ns) for key, ns in run.setup.items() if ns is not None]
    return Table("Outside the window", [Column("part"), Column("seconds", "s")], rows)


def cost(run: Run, per_hour: float) -> Table:
    """Return the run's cost at a price of the whole cluster per hour, in the currency of the price."""
    lengths = {"run": run.wall_ns, "training": run.metrics.training_ns}
    if reached := run.time_to_accuracy:
        lengths[f"to accuracy {reached.target:g}"] = reached.from_submit_ns
    rows = [(name, None if ns is None else per_hour * ns / NS_PER_HOUR, ns) for name, ns in lengths.items()]
    columns = [Column("part"), Column("cost", "number"), Column("seconds", "s")]
    return Table(f"Cost at {per_hour:g} per hour for the whole cluster", columns, rows)


# ---- resources


def layer_use(run: Run) -> Table:
    """Return the machine's use while the wall was a layer's."""
    used = run.resources
    shares = ["CPU, %", *(["GPU, %"] if used and used.gpus else [])]
    columns = [Column("layer"), Column("seconds", "s"), *_columns("share", *shares),
               *_columns("mb", "disk read, MB", "written, MB", "loopback, MB", "received, MB", "sent, MB")]  # fmt: skip
    rows = []
    for row in used.layers if used else ():
        busy = (row.cpu_busy_share, row.gpu_busy_share)[: len(shares)]
        sizes = (row.disk_read_bytes, row.disk_written_bytes, row.loopback_bytes, row.net_received_bytes,
                 row.net_sent_bytes)  # fmt: skip
        rows.append((title(row.layer), row.ns, *busy, *(size if row.sampled_ns else None for size in sizes)))
    machine = used.hosts[0].machine if used else ""
    note = f"Machine: {machine}. Its use while the wall time was the layer's; CPU of all cores."
    return Table("Resource use by layer", columns, rows, note)


def role_use(run: Run) -> Table:
    """Return the use of processes, summed by role."""
    roles: dict[str, list[ProcessUse]] = defaultdict(list)
    for process in run.resources.processes if run.resources else ():
        roles[process.role].append(process)
    rows = [
        (
            role,
            sum(process.count for process in alike),
            sum(process.cpu_ns for process in alike),
            max(process.rss_peak_bytes for process in alike),
            _sum(process.read_bytes for process in alike),
            _sum(process.write_bytes for process in alike),
        )
        for role, alike in sorted(roles.items(), key=lambda item: -sum(process.cpu_ns for process in item[1]))
    ]
    columns = [Column("role"), Column("count", "number"), Column("CPU, s", "s"),
               *_columns("mb", "memory at most, MB", "disk read, MB", "written, MB")]  # fmt: skip
    return Table("Resource use by role, in the window", columns, rows, "Memory is that of the largest process.")


def process_use(run: Run) -> Table:
    """Return the use of each process, for the page only."""
    sizes = _columns("mb", "memory at most, MB", "disk read, MB", "written, MB")
    columns = [Column("role"), Column("index", "number"), Column("process"), Column("count", "number"),
               Column("CPU, s", "s"), *sizes]  # fmt: skip
    processes = sorted(run.resources.processes if run.resources else (), key=lambda process: -process.cpu_ns)
    rows = [
        (use.role, use.index, use.name, use.count, use.cpu_ns, use.rss_peak_bytes, use.read_bytes, use.write_bytes)
        for use in processes
    ]
    return Table("Resource use by process, in the window", columns, rows)


def thread_use(run: Run) -> Table:
    """Return thread time and disk reads, summed by role."""
    processes = run.core_waits.processes if run.core_waits else ()
    blocked = any(process.block_io_ns is not None for process in processes)
    roles: dict[str, list[ThreadUse]] = defaultdict(list)
    for process in processes:
        roles[process.role].append(process)
    rows = [
        (
            role,
            len(alike),
            _sum(use.on_core_ns for use in alike),
            _sum(use.ended_on_core_ns for use in alike),
            _sum(use.waiting_ns for use in alike),
            _sum(use.read_bytes for use in alike),
            _sum(use.major_faults for use in alike),
            *([_sum(use.block_io_ns for use in alike)] if blocked else []),
        )
        for role, alike in roles.items()
    ]
    columns = [Column("role"), Column("count", "number"),
               *_columns("s", "on a core, s", "of ended threads, s", "waiting, s"), Column("disk read, MB", "mb"),
               Column("page faults", "number"), *(_columns("s", "blocked by disks, s") if blocked else ())]  # fmt: skip
    note = "Threads of a process are summed. Page faults: pages that were read from a disk."
    return Table("Thread time and disk reads by role, in the window", columns, rows, note)


# ---- Spark, Python, checks, environment


def spark_metrics(run: Run) -> Table:
    """Return Spark's task metrics that are not 0."""
    values = run.spark_metrics.metrics if run.spark_metrics else {}
    note = "Milliseconds, bytes, counts. Times of parallel tasks are summed and can exceed the wall time."
    if zero := [name for name, value in values.items() if not value]:
        note += f" 0: {', '.join(zero)}."
    rows = [(name, value) for name, value in values.items() if value]
    columns = [Column("metric"), Column("value", "number")]
    return Table("Spark's task metrics, in sparkMeasure's names", columns, rows, note)


def stages(run: Run) -> Table:
    """Return the stages with the largest run time."""
    spark = run.spark_metrics
    columns = [Column("stage"), Column("call"), Column("tasks", "number"),
               *_columns("number", "run, ms", "CPU, ms", "GC, ms"), Column("skew, s", "s")]  # fmt: skip
    every = sorted(spark.stages if spark else (), key=lambda stage: -stage.metrics["executorRunTime"])
    rows = [
        (f"{stage.stage}.{stage.attempt}", stage.call,
         *(stage.metrics[name] for name in ("numTasks", "executorRunTime", "executorCpuTime", "jvmGCTime")),
         stage.skew_ns)
        for stage in every[:MOST_ROWS]
    ]  # fmt: skip
    notes = ["Skew: the slowest task less the median task."]
    if left := len(every) - len(rows):
        notes.append(f"{left} more stages with less run time are in run.json.")
    if spark:
        notes.append(f"Skew of all stages: {text.seconds(spark.skew_ns)} s.")
        notes += [f"{spark.failed_tasks} tasks failed."] if spark.failed_tasks else []
    return Table("Spark's stages, sums over their tasks", columns, rows, " ".join(notes))


def imports(run: Run) -> Table:
    """Return the longest Python imports."""
    columns = [Column("role"), Column("index", "number"), *_columns("text", "package", "imported by"),
               *_columns("s", "with nested imports, s", "without, s")]  # fmt: skip
    every = sorted(run.imports, key=lambda row: -row.ns)[:MOST_ROWS]
    rows = [(row.role, row.index, row.package, row.by or "the program", row.ns, row.own_ns) for row in every]
    return Table("Python imports, the longest", columns, rows)


def checks(run: Run) -> Table:
    """Return the checks that failed, and those that the evidence does not decide."""
    columns = [*_columns("text", "verdict", "check", "message"), Column("one figure", "number"), Column("its source"),
               Column("the other", "number"), Column("its source")]  # fmt: skip
    wanted = [check for verdict in ("fail", "unknown") for check in run.checks if check.verdict == verdict]
    rows = [
        ("failed" if check.verdict == "fail" else "impossible", check.code, check.message, check.left,
         check.left_source, check.right, check.right_source)
        for check in wanted
    ]  # fmt: skip
    return Table("Checks that did not pass", columns, rows)


def environment(run: Run) -> Table:
    """Return machine, versions, code and seeds."""
    parts: list[tuple[str, Mapping[str, object]]] = [("machine", run.platform), ("version", run.versions)]
    if run.git:
        dirty = {True: "yes", False: "no", None: None}[run.git.dirty]
        parts.append(("code", {"commit": run.git.commit, "changed since": dirty}))
    parts.append(("seed", run.seeds))
    rows = [(part, name, value) for part, values in parts for name, value in values.items()]
    return Table("Environment", _columns("text", "part", "name", "value"), rows)


def _sum(values: Iterable[int | None]) -> int | None:
    """Sum the known values; None if all are unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
