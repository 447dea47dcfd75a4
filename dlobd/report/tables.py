"""Tables of a run for the terminal and the page: title, typed columns, rows of plain values, note.

Units of columns: text; s and ms are integers of nanoseconds, shown in seconds and milliseconds; mb is an integer of
bytes, shown in MB (10^6 bytes); share is of 1, shown in percent; number. A value of None is unknown.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, get_args

from dlobd.layers import title
from dlobd.record.resources import ProcessUse, ThreadUse
from dlobd.record.run import HdfsUse, Run
from dlobd.report import text
from dlobd.report.summary import SAMPLES_FOR_P99, below_resolution, by_size, metrics, parts_of, seen_ns, share
from dlobd.schema import Clip, Event, Interval
from dlobd.spans import INSTANTS

Unit = Literal["text", "s", "ms", "mb", "share", "number"]
Cell = object
Row = Sequence[Cell]

MOST_ROWS = 40
"""Maximum rows of the tables of stages and imports; run.json has all entries."""

LARGEST = 10
"""Number of span names in the table of the largest parts."""


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table: heading, unit of the values, and True if it does not fit the terminal's 79 columns."""

    name: str
    unit: Unit = "text"
    page_only: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Table of a run. `totals` are final rows for the terminal; the page's sortable table omits them.

    heads: "name:unit | name". Text columns have no unit; a final "+" marks a column of the page only.
    """

    title: str
    heads: str
    rows: Sequence[Row]
    note: str = ""
    totals: Sequence[Row] = ()

    @property
    def columns(self) -> list[Column]:
        """Columns declared by `heads`. Raises ValueError for an unknown unit."""
        made = []
        for head in map(str.strip, self.heads.split("|")):
            name, _, unit = head.removesuffix("+").partition(":")
            known = next((one for one in get_args(Unit) if one == (unit or "text")), None)
            if known is None:
                raise ValueError(f"{head}: the unit is not one of {get_args(Unit)}")
            made.append(Column(name, known, head.endswith("+")))
        return made


def _values(items: Iterable[object], names: str) -> list[Row]:
    """Build one row of attribute values per item."""
    values = attrgetter(*names.split())
    return [values(item) for item in items]


def cell(value: Cell, unit: Unit = "text", unknown: str = "unknown") -> str:
    """Format a value by the column's unit; text stays unchanged."""
    if value is None:
        return unknown
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        digits = {"s": f"{value / 1e9:.3f}", "ms": f"{value / 1e6:.3f}", "mb": f"{value / 1e6:.1f}"}
        if unit in digits:
            return digits[unit]
    if isinstance(value, int | float) and unit == "share":
        return f"{100 * value:.1f}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return json.dumps(value)


# ---- the wall time


def layers(run: Run) -> Table:
    """Build the table of the wall time by layer, with the bounds of each layer; the longest is first."""
    rows = []
    for part in by_size(run):
        seconds = f"< {part.hi_ns / 1e9:.3f}" if below_resolution(run, part) else part.ns
        lengths = part.lo_ns, part.hi_ns, part.unexplained_ns
        rows.append((title(part.layer), seconds, share(run, part.ns), *lengths))
    total_ns = sum(part.ns for part in by_size(run))
    total = ("total", total_ns, share(run, total_ns), "", "", run.unexplained_ns)
    note = "Bounds of different layers depend on each other; do not add them up."
    heads = "layer | seconds:s | % of wall time:share | lowest, s:s | highest, s:s | unexplained, s:s"
    return Table("Where the wall time went", heads, rows, note, [total])


def evidence(run: Run) -> Table:
    """Build the table of evidence quality by layer; a row sums to the layer's seconds."""
    values = _values(parts_of(run), "measured_ns between_marks_ns named_wait_ns unexplained_ns")
    rows = [(title(part.layer), *row) for part, row in zip(parts_of(run), values, strict=True)]
    sums = *seen_ns(run), run.unexplained_ns
    totals = [("total", *sums), ("of wall time", *(text.percentage(share(run, ns), 1) for ns in sums))]
    heads = "layer | measured, s:s | between marks, s:s | named waits, s:s | unexplained, s:s"
    return Table("Quality of the evidence", heads, rows, totals=totals)


def core_waits(run: Run) -> Table:
    """Build the table of thread states by layer."""
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
    heads = (
        "layer | on a core, s:s | waiting for a core, s:s | at least, s:s | at most, s:s | blocked, s:s | unknown, s:s"
    )
    return Table("Thread state while the time passed", heads, rows, note, totals)


PART = "layer | seconds:s | % of wall time:share | name"


def largest(run: Run) -> Table:
    """Build the table of the span names with the most time."""
    parts = sorted((-ns, row.layer, name) for row in run.layers for name, ns in row.names)[:LARGEST]
    rows = [(title(layer), -ns, share(run, -ns), name) for ns, layer, name in parts]
    return Table("Largest parts", PART, rows)


def causes(run: Run) -> Table:
    """Build the table of named causes of waits."""
    rows = [
        (title(row.layer), ns, share(run, ns), name, length) for row in run.layers for name, ns, length in row.causes
    ]
    return Table("Named causes, contained in the layers", f"{PART} | length", rows)


def hidden(run: Run) -> Table:
    """Build the table of layers inside other layers; bounds from equal sources are summed, as no intervals overlap."""
    groups: dict[tuple[str, str, str, str], list[Interval]] = defaultdict(list)
    for one in run.intervals:
        groups[one.layer, one.inside, one.lo_source, one.hi_source].append(one)
    rows = [
        (title(layer), title(inside), *_sums(alike, "lo_ns hi_ns"), *sources)
        for (layer, inside, *sources), alike in groups.items()
    ]
    heads = "layer | inside | lowest, s:s | highest, s:s | source of the lowest | source of the highest"
    return Table("Hidden inside another layer, known only between bounds", heads, rows)


def not_measured(run: Run) -> Table:
    """Build the table of layers that were not measured. A row without an enclosing layer took no part in the run."""
    rows = [(title(row.layer), title(row.inside) if row.inside else "", row.why) for row in run.not_measured]
    return Table("Not measured", "layer | inside | reason", rows)


def corrections(run: Run) -> Table:
    """Build the table of corrections of the evidence, by kind."""
    kinds: dict[str, list[Clip]] = defaultdict(list)
    for clip in run.clips:
        kinds[clip.kind].append(clip)
    rows: list[Row] = []
    for kind, clips in kinds.items():
        most = max(clips, key=lambda clip: (clip.count == 1, clip.ns))
        rows.append((kind, *_sums(clips, "ns count"), most.span, most.ns))
    return Table("Corrections of the evidence", "kind | seconds:s | count:number | largest, span | largest, s:s", rows)


def events(run: Run, name: str, happened: Sequence[Event]) -> Table:
    """Build the table of start-up or teardown events in chronological order."""
    rows = []
    since = ""
    previous = None
    for event in happened:
        if previous:  # an uncertain order or interval is shown as a bound
            ns, resolution_ns = event.at_ns - previous.at_ns, max(previous.resolution_ns, event.resolution_ns)
            since = f"< {text.short(resolution_ns)}" if abs(ns) < resolution_ns else f"{ns / 1e9:+.3f}"
        zero_ns = run.window.start_ns if run.window else happened[0].at_ns
        kind = INSTANTS.get(event.event)
        seen = (event.source, text.short(event.resolution_ns), event.clock)
        rows.append((event.event, event.at_ns - zero_ns, since, kind and kind.unlocks, *seen))
        previous = event
    start = run.window.name.partition(" -> ")[0] if run.window else "the first event"
    heads = "event | at, s:s | since the previous, s | unlocks+ | source | resolution | clock"
    return Table(name, heads, rows, f"Seconds since {start}.")


# ---- the job


def hdfs(run: Run) -> Table:
    """Build the table of HDFS use by purpose."""
    rows = [
        (row.purpose, row.operations, row.bytes, row.ns, *_bounds(row), row.source_begin, row.source_end)
        for row in run.hdfs
    ]
    heads = "purpose | calls:number | MB:mb | seconds:s | lowest, s:s | highest, s:s | from | to"
    return Table("HDFS by purpose", heads, rows, "Summed over all lanes; the sum can exceed the layer's wall time.")


def _bounds(row: HdfsUse) -> tuple[int | None, int | None]:
    return (row.ns if row.lo_ns is None else row.lo_ns), (row.ns if row.hi_ns is None else row.hi_ns)


def lost_work(run: Run) -> Table:
    """Build the table of task attempts whose results Spark did not use."""
    rows = [(row.cause, row.attempts, row.ns) for row in run.lost_work]
    note = "Summed over all executors; only waits of a job for these attempts are wall time."
    return Table("Lost work of Spark's task attempts", "cause | attempts:number | seconds:s", rows, note)


def ranks(run: Run) -> Table:
    """Build the table of steps by rank; for a user's script, the duration of its main function."""
    if run.own and any(rank.steps for rank in run.ranks):
        heads = (
            "rank | main function, s:s | steps:number | p50, ms:ms | p99, ms:ms+ | max, ms:ms+ | first step, s:s "
            "| waited for input, s:s"
        )
        names = "name main_ns steps step_p50_ns step_p99_ns step_max_ns first_step_ns feed_wait_ns"
        unclear = any(rank.steps is None for rank in run.ranks)
        note = "Unknown steps: no tf.function trained, or one had the loop inside. dlobd.step() marks steps." * unclear
        return Table("Ranks", heads, _values(run.ranks, names), note)
    if run.own:
        own = "rank | main function, s:s | of these in DataFeed.next_batch, s:s"
        return Table("Ranks", own, _values(run.ranks, "name main_ns feed_wait_ns"))
    few = any((rank.steps or 0) < SAMPLES_FOR_P99 for rank in run.ranks)
    rows = []
    for rank in run.ranks:
        p99_ns = rank.step_p99_ns if (rank.steps or 0) >= SAMPLES_FOR_P99 else None
        lengths = rank.step_p50_ns, p99_ns, rank.step_max_ns, rank.first_step_ns, rank.feed_wait_ns
        rows.append((rank.name, rank.steps, *lengths))
    note = f"p99 needs {SAMPLES_FOR_P99} steps; with fewer steps only the maximum is known." * few
    heads = "rank | steps:number | p50, ms:ms | p99, ms:ms | max, ms:ms | first step, s:s | waited for the feed, s:s"
    return Table("Ranks", heads, rows, note)


def exchange(run: Run) -> Table:
    """Build the table of each rank's gradient exchange, by parts."""
    names = "calls bytes compute_ns exchange_ns pack_ns wait_for_peers_ns wire_ns unpack_ns overlap"
    rows = [(f"{use.role} {use.index}", *_values([use], names)[0]) for use in run.exchange]
    heads = (
        "rank | calls:number | MB:mb | compute, s:s+ | exchange, s:s+ | pack, s:s | wait, s:s | wire, s:s "
        "| unpack, s:s | overlap:number"
    )
    return Table("Gradient exchange, all steps together", heads, rows)


def throughput(run: Run) -> Table:
    """Build the table of percentiles of the chief's step times, without warm-up steps."""
    lengths = {"step": run.throughput.step, "step with input": run.throughput.step_with_input} if run.throughput else {}
    values = _values(lengths.values(), "p50_ns p90_ns p95_ns p99_ns max_ns")
    rows = [(name, *times) for name, times in zip(lengths, values, strict=True)]
    return Table("Length of steps", "milliseconds | p50:ms | p90:ms | p95:ms | p99:ms | max:ms", rows)


def epochs(run: Run) -> Table:
    """Build the table of epochs with loss, accuracy, and time from submit and from the first touch."""
    own = _values(run.epochs, "epoch ns loss test_accuracy evaluation_ns")
    known = ((run.from_submit_ns(row), run.from_first_touch_ns(row)) for row in run.epochs)
    rows = [(*row, *times) for row, times in zip(own, known, strict=True)]
    heads = (
        "epoch:number | seconds:s | mean loss:number | test accuracy:number | evaluation, s:s "
        "| known, s from submit:s | known, s from the first touch of the data:s"
    )
    return Table("Epochs", heads, rows)


def metric_values(run: Run) -> Table:
    """Build the table of the job's metrics; name suffixes give the units."""
    rows: list[Row] = []
    for name, value in metrics(run):
        if value is not None and name.endswith("_ns"):
            rows.append((name.removesuffix("_ns"), round(value / 1e9, 3), "s"))
        elif value is not None and name.endswith("_bytes"):
            rows.append((name.removesuffix("_bytes"), round(value / 1e6, 1), "MB"))
        else:
            rows.append((name, value, ""))
    return Table("Metrics", "metric | value:number | unit", rows)


def setup(run: Run) -> Table:
    """Build the table of activities outside the window."""
    rows = [(key.removesuffix("_ns"), ns) for key, ns in run.setup.items() if ns is not None]
    return Table("Outside the window", "part | seconds:s", rows)


def cost(run: Run, per_hour: float) -> Table:
    """Build the table of the run's cost; `per_hour` is the price of the whole cluster per hour."""
    lengths = {"run": run.wall_ns, "training": run.metrics.training_ns}
    if reached := run.time_to_accuracy:
        lengths[f"to accuracy {reached.target:g}"] = reached.from_submit_ns
    prices = (None if ns is None else round(per_hour * ns / 3_600_000_000_000, 4) for ns in lengths.values())
    rows = list(zip(lengths, prices, lengths.values(), strict=True))
    return Table(f"Cost at {per_hour:g} per hour for the whole cluster", "part | cost:number | seconds:s", rows)


# ---- resources


def layer_use(run: Run) -> Table:
    """Build the table of the machine's resource use during each layer's wall time."""
    used = run.resources
    gpus = bool(used and used.gpus)
    rows = []
    sizes = "disk_read_bytes disk_written_bytes loopback_bytes net_received_bytes net_sent_bytes"
    for row in used.layers if used else ():
        busy = (row.cpu_busy_share, row.gpu_busy_share)[: 1 + gpus]
        known = (size if row.sampled_ns else None for size in _values([row], sizes)[0])
        rows.append((title(row.layer), row.ns, *busy, *known))
    machine = used.hosts[0].machine if used else ""
    note = f"Machine: {machine}. Use during the layer's wall time; CPU as percentage of all cores."
    heads = (
        f"layer | seconds:s | CPU, %:share {'| GPU, %:share ' * gpus}| disk read, MB:mb | written, MB:mb "
        "| loopback, MB:mb | received, MB:mb | sent, MB:mb"
    )
    return Table("Resource use by layer", heads, rows, note)


def role_use(run: Run) -> Table:
    """Build the table of process resource use, summed by role."""
    roles: dict[str, list[ProcessUse]] = defaultdict(list)
    for process in run.resources.processes if run.resources else ():
        roles[process.role].append(process)
    rows = []
    for role, alike in sorted(roles.items(), key=lambda item: -sum(process.cpu_ns for process in item[1])):
        peak_bytes = max(process.rss_peak_bytes for process in alike)
        rows.append((role, *_sums(alike, "count cpu_ns"), peak_bytes, *_sums(alike, "read_bytes write_bytes")))
    heads = "role | count:number | CPU, s:s | memory at most, MB:mb | disk read, MB:mb | written, MB:mb"
    return Table("Resource use by role, in the window", heads, rows, "Memory: peak of the largest process.")


def process_use(run: Run) -> Table:
    """Build the table of each process's resource use, for the page only."""
    processes = sorted(run.resources.processes if run.resources else (), key=lambda process: -process.cpu_ns)
    rows = _values(processes, "role index name count cpu_ns rss_peak_bytes read_bytes write_bytes")
    heads = (
        "role | index:number | process | count:number | CPU, s:s | memory at most, MB:mb | disk read, MB:mb "
        "| written, MB:mb"
    )
    return Table("Resource use by process, in the window", heads, rows)


def thread_use(run: Run) -> Table:
    """Build the table of thread time and disk reads, summed by role."""
    processes = run.core_waits.processes if run.core_waits else ()
    blocked = any(process.block_io_ns is not None for process in processes)
    roles: dict[str, list[ThreadUse]] = defaultdict(list)
    for process in processes:
        roles[process.role].append(process)
    names = "on_core_ns ended_on_core_ns waiting_ns read_bytes major_faults" + " block_io_ns" * blocked
    rows = [(role, len(alike), *_sums(alike, names)) for role, alike in roles.items()]
    heads = (
        "role | count:number | on a core, s:s | of ended threads, s:s | waiting, s:s | disk read, MB:mb "
        f"| page faults:number{' | blocked by disks, s:s' * blocked}"
    )
    note = "Threads of a process are summed. Page faults: pages that were read from a disk."
    return Table("Thread time and disk reads by role, in the window", heads, rows, note)


def _sums(items: Sequence[object], names: str) -> Iterator[int | None]:
    """Yield the sum of known values of each attribute; None if all are unknown."""
    for name in names.split():
        known = [value for value in map(attrgetter(name), items) if value is not None]
        yield sum(known) if known else None


# ---- Spark, Python, checks, environment


def spark_metrics(run: Run) -> Table:
    """Build the table of Spark's task metrics other than 0."""
    values = run.spark_metrics.metrics if run.spark_metrics else {}
    note = "Milliseconds, bytes, counts. Times of parallel tasks are summed and can exceed the wall time."
    if zero := [name for name, value in values.items() if not value]:
        note += f" 0: {', '.join(zero)}."
    rows = [(name, value) for name, value in values.items() if value]
    return Table("Spark's task metrics, in sparkMeasure's names", "metric | value:number", rows, note)


def stages(run: Run) -> Table:
    """Build the table of Spark stages with the largest run time."""
    spark = run.spark_metrics
    every = sorted(spark.stages if spark else (), key=lambda stage: -stage.metrics["executorRunTime"])
    names = ("numTasks", "executorRunTime", "executorCpuTime", "jvmGCTime")
    rows = [
        (f"{stage.stage}.{stage.attempt}", stage.call, *(stage.metrics[name] for name in names), stage.skew_ns)
        for stage in every[:MOST_ROWS]
    ]
    notes = ["Skew: slowest task minus median task."]
    if left := len(every) - len(rows):
        notes.append(f"{left} more stages with less run time are in run.json.")
    if spark:
        notes.append(f"Skew of all stages: {text.seconds(spark.skew_ns)} s.")
        notes += [f"{spark.failed_tasks} tasks failed."] if spark.failed_tasks else []
    heads = "stage | call | tasks:number | run, ms:number | CPU, ms:number | GC, ms:number | skew, s:s"
    return Table("Spark's stages, sums over their tasks", heads, rows, " ".join(notes))


def python_work(run: Run) -> Table:
    """Build the table of the time inside Python workers, by stage and kind of evaluation."""
    names = "tasks ns function_ns loop_ns function_and_loop_ns serialise_ns read_ns write_ns function"
    rows = []
    for work in sorted(run.python_work, key=lambda row: -row.ns)[:MOST_ROWS]:
        evaluation = work.evaluation.removeprefix("SQL_").replace("_", " ").lower()
        rows.append((work.stage, "RDD" if evaluation == "non udf" else evaluation, *_values([work], names)[0]))
    heads = (
        "stage | evaluation | tasks:number | in all, s:s | function, s:s | loop, s:s | both, s:s+ | serialise, s:s "
        "| read, s:s | write, s:s | function is+"
    )
    note = "Loop: PySpark's. Read and write: JVM, with waits. Task seconds of parallel tasks add up. "
    note += "A function that is called for each row is sampled. Unknown: function and loop cannot be separated."
    return Table("Inside Python workers", heads, rows, note)


def imports(run: Run) -> Table:
    """Build the table of the longest Python imports."""
    every = sorted(run.imports, key=lambda row: -row.ns)[:MOST_ROWS]
    rows = [(row.role, row.index, row.package, row.by or "the program", row.ns, row.own_ns) for row in every]
    heads = "role | index:number | package | imported by | with nested imports, s:s | without, s:s"
    return Table("Python imports, the longest", heads, rows)


def checks(run: Run) -> Table:
    """Build the table of checks with verdict fail or unknown."""
    wanted = [check for verdict in ("fail", "unknown") for check in run.checks if check.verdict == verdict]
    figures = _values(wanted, "code message left left_source right right_source")
    rows = [
        ("failed" if check.verdict == "fail" else check.verdict, *values)
        for check, values in zip(wanted, figures, strict=True)
    ]
    heads = "verdict | check | message | first figure:number | first source | second figure:number | second source"
    return Table("Checks that did not pass", heads, rows)


def environment(run: Run) -> Table:
    """Build the table of machine, versions, code and seeds."""
    parts: list[tuple[str, Mapping[str, object]]] = [("machine", run.platform), ("version", run.versions)]
    if run.git:
        dirty = {True: "yes", False: "no", None: None}[run.git.dirty]
        parts.append(("code", {"commit": run.git.commit, "changed since": dirty}))
    parts.append(("seed", run.seeds))
    rows = [(part, name, value) for part, values in parts for name, value in values.items()]
    return Table("Environment", "part | name | value", rows)
