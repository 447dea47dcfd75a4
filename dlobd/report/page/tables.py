"""The tables of a run: each a title, typed columns and rows of plain values, which the page sorts and copies as CSV.

Kinds of columns: text; s, ms and mb are integers of nanoseconds and bytes, shown in seconds, milliseconds and MB; share
is of 1, shown in percent; number. None is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlobd.layers import UNATTRIBUTED
from dlobd.record.run import Run
from dlobd.report.summary import SAMPLES_FOR_P99, Part, Summary, metrics, title

Columns = Sequence[tuple[str, str]]

STAGES = 40
"""So many of Spark's stages, those with the largest run time."""


def table(name: str, columns: Columns, rows: Iterable[Sequence[Any]], note: str = "") -> dict[str, Any]:
    """A table as JSON has it."""
    heads = [{"name": head, "kind": kind} for head, kind in columns]
    return {"title": name, "columns": heads, "rows": [list(row) for row in rows], "note": note}


def tables(run: Run, found: Summary) -> list[dict[str, Any]]:
    """All of a run that have a row."""
    every = [
        _layers(found),
        *_parts(found),
        _passed(run),
        _hdfs(run),
        _resources(run),
        _processes(run),
        *_spark(run),
        _imports(run),
        table(
            "Metrics",
            (("metric", "text"), ("value", "text")),
            metrics(run),
        ),
        table(
            "Outside the window",
            (("part", "text"), ("seconds", "s")),
            [(key.removesuffix("_ns"), ns) for key, ns in run.setup.items() if ns is not None],
        ),
    ]
    return [one for one in every if one["rows"]]


def ranks(run: Run) -> dict[str, Any]:
    """Steps by rank; of the user's own script, seconds in its main function."""
    if run.own:
        own = (("rank", "text"), ("main function, s", "s"), ("of these in DataFeed.next_batch, s", "s"))
        return table("Ranks", own, [(rank.name, rank.main_ns, rank.feed_wait_ns) for rank in run.ranks])
    columns = (("rank", "text"), ("steps", "number"), ("p50, ms", "ms"), ("p99, ms", "ms"), ("max, ms", "ms"),
               ("first step, s", "s"), ("waited for the feed, s", "s"))  # fmt: skip
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
    return table("Ranks", columns, rows, f"p99 needs {SAMPLES_FOR_P99} steps; with fewer only the maximum is known.")


def exchange(run: Run) -> dict[str, Any]:
    """Each rank's exchanges by their parts."""
    columns = (("rank", "text"), ("calls", "number"), ("MB", "mb"), ("compute, s", "s"), ("exchange, s", "s"),
               ("pack, s", "s"), ("wait, s", "s"), ("wire, s", "s"), ("unpack, s", "s"),
               ("overlap", "number"))  # fmt: skip
    rows = [
        (f"{use.role} {use.index}", use.calls, use.bytes, use.compute_ns, use.exchange_ns, use.pack_ns,
         use.wait_for_peers_ns, use.wire_ns, use.unpack_ns, use.overlap)
        for use in run.exchange
    ]  # fmt: skip
    return table("Gradient exchange, all steps together", columns, rows)


def epochs(run: Run) -> dict[str, Any]:
    """Epochs with loss and accuracy, on two clocks."""
    columns = (("epoch", "number"), ("seconds", "s"), ("mean loss", "number"), ("test accuracy", "number"),
               ("evaluation, s", "s"), ("known, s from submit", "s"),
               ("known, s from the first touch of the data", "s"))  # fmt: skip
    rows = [
        (one.epoch, one.ns, one.loss, one.test_accuracy, one.evaluation_ns, run.from_submit_ns(one),
         run.from_first_touch_ns(one))
        for one in run.epochs
    ]  # fmt: skip
    return table("Epochs", columns, rows)


def checks(run: Run) -> dict[str, Any]:
    """The checks that failed, and those that the evidence does not decide."""
    columns = (("verdict", "text"), ("check", "text"), ("message", "text"), ("one figure", "number"),
               ("its source", "text"), ("the other", "number"), ("its source", "text"))  # fmt: skip
    wanted = [check for verdict in ("fail", "unknown") for check in run.checks if check.verdict == verdict]
    rows = [
        ("failed" if one.verdict == "fail" else "impossible", one.code, one.message, one.left, one.left_source,
         one.right, one.right_source)
        for one in wanted
    ]  # fmt: skip
    return table("Checks that did not pass", columns, rows)


def environment(run: Run) -> dict[str, Any]:
    """Machine, versions, code and seeds."""
    parts: list[tuple[str, Mapping[str, Any]]] = [("machine", run.platform), ("version", run.versions)]
    if run.git:
        dirty = {True: "yes", False: "no", None: None}[run.git.dirty]
        parts.append(("code", {"commit": run.git.commit, "changed since": dirty}))
    parts.append(("seed", run.seeds))
    rows = [(part, name, value) for part, values in parts for name, value in values.items()]
    return table("Environment", (("part", "text"), ("name", "text"), ("value", "text")), rows)


def _layers(found: Summary) -> dict[str, Any]:
    columns = (("layer", "text"), ("seconds", "s"), ("% of the wall", "share"), ("lowest, s", "s"),
               ("highest, s", "s"), ("measured, s", "s"), ("between marks, s", "s"), ("named waits, s", "s"),
               ("unexplained, s", "s"))  # fmt: skip
    rest = (found.unattributed,) if found.unattributed else ()
    small = [part.title for part in found.parts if part.below_resolution]
    notes = ["Moving one uncertain boundary changes two layers: lowest and highest do not sum."]
    if small:
        notes.append(f"Shorter than its boundaries are known to, so that only the highest counts: {', '.join(small)}.")
    return table("Layers", columns, [_layer(part) for part in (*found.parts, *rest)], " ".join(notes))


def _layer(part: Part) -> tuple[Any, ...]:
    degrees = (part.measured_ns, part.between_marks_ns, part.named_wait_ns)
    if part.layer == UNATTRIBUTED:
        degrees = (0, 0, 0)
    return (part.title, part.ns, part.share, part.lo_ns, part.hi_ns, *degrees, part.unexplained_ns)


def _parts(found: Summary) -> list[dict[str, Any]]:
    columns = (("layer", "text"), ("seconds", "s"), ("% of the wall", "share"), ("name", "text"))
    largest = [(one.title, one.ns, found.share(one.ns), one.name) for one in found.largest]
    causes = [(one.title, one.ns, found.share(one.ns), one.name, one.length) for one in found.causes]
    hidden = [(title(one.layer), title(one.inside), one.lo_ns, one.hi_ns, one.lo_source, one.hi_source)
              for one in found.hidden]  # fmt: skip
    return [
        table("Largest parts", columns, largest),
        table("Named causes, contained in the layers", (*columns, ("length", "text")), causes),
        table(
            "Hidden inside another layer, known only as an interval",
            (("layer", "text"), ("inside", "text"), ("lowest, s", "s"), ("highest, s", "s"), ("source of the lowest",
             "text"), ("source of the highest", "text")),
            hidden,
        ),
    ]  # fmt: skip


def _passed(run: Run) -> dict[str, Any]:
    columns = (("layer", "text"), ("on a core, s", "s"), ("waited for one, s", "s"), ("at least, s", "s"),
               ("at most, s", "s"), ("blocked, s", "s"), ("unknown, s", "s"))  # fmt: skip
    rows = []
    for row in run.core_waits.layers if run.core_waits else ():
        known = row.unknown_ns < row.ns
        lengths = (row.on_core_ns, row.waiting_ns, row.waiting_lo_ns, row.waiting_hi_ns, row.blocked_ns)
        rows.append((title(row.layer), *(ns if known else None for ns in lengths), row.unknown_ns))
    return table("How it passed for the thread that carried it", columns, rows)


def _hdfs(run: Run) -> dict[str, Any]:
    columns = (("purpose", "text"), ("calls", "number"), ("MB", "mb"), ("seconds", "s"), ("lowest, s", "s"),
               ("highest, s", "s"), ("from", "text"), ("to", "text"))  # fmt: skip
    rows = [
        (row.purpose, row.operations, row.bytes, row.ns, row.ns if row.lo_ns is None else row.lo_ns,
         row.ns if row.hi_ns is None else row.hi_ns, row.source_begin, row.source_end)
        for row in run.hdfs
    ]  # fmt: skip
    return table("HDFS by purpose", columns, rows, "In all lanes, so that it may exceed the layer.")


def _resources(run: Run) -> dict[str, Any]:
    columns = (("layer", "text"), ("seconds", "s"), ("CPU %", "share"), ("GPU %", "share"), ("disk read, MB", "mb"),
               ("written, MB", "mb"), ("loopback, MB", "mb"), ("received, MB", "mb"), ("sent, MB", "mb"))  # fmt: skip
    rows = [
        (title(row.layer), row.ns, row.cpu_busy_share, row.gpu_busy_share, row.disk_read_bytes,
         row.disk_written_bytes, row.loopback_bytes, row.net_received_bytes, row.net_sent_bytes)
        for row in (run.resources.layers if run.resources else ())
    ]  # fmt: skip
    note = "Of the whole machine while the wall time was the layer's: CPU % of all cores."
    return table("Resource use by layer", columns, rows, note)


def _processes(run: Run) -> dict[str, Any]:
    columns = (("role", "text"), ("index", "number"), ("process", "text"), ("count", "number"), ("CPU, s", "s"),
               ("memory at most, MB", "mb"), ("disk read, MB", "mb"), ("written, MB", "mb"))  # fmt: skip
    rows = [
        (one.role, one.index, one.name, one.count, one.cpu_ns, one.rss_peak_bytes, one.read_bytes, one.write_bytes)
        for one in sorted(run.resources.processes if run.resources else (), key=lambda one: -one.cpu_ns)
    ]
    return table("Resource use by process, in the window", columns, rows)


def _spark(run: Run) -> list[dict[str, Any]]:
    found = run.spark_metrics
    if found is None:
        return []
    columns = (("stage", "text"), ("call", "text"), ("tasks", "number"), ("run, ms", "number"), ("CPU, ms", "number"),
               ("GC, ms", "number"), ("skew, s", "s"))  # fmt: skip
    largest = sorted(found.stages, key=lambda stage: -stage.metrics["executorRunTime"])[:STAGES]
    rows = [
        (f"{stage.stage}.{stage.attempt}", stage.call,
         *(stage.metrics[name] for name in ("numTasks", "executorRunTime", "executorCpuTime", "jvmGCTime")),
         stage.skew_ns)
        for stage in largest
    ]  # fmt: skip
    left = len(found.stages) - len(largest)
    return [
        table(
            "Spark's task metrics, in sparkMeasure's names",
            (("metric", "text"), ("value", "number")),
            found.metrics.items(),
            "Milliseconds, bytes, counts. Times of parallel tasks add up, so that they may exceed the wall.",
        ),
        table(
            "Spark's stages, sums over their tasks",
            columns,
            rows,
            "Skew: the slowest task less the median one."
            + f" {left} more stages with less run time are in run.json." * bool(left),
        ),
    ]


def _imports(run: Run) -> dict[str, Any]:
    columns = (("role", "text"), ("index", "number"), ("package", "text"), ("imported by", "text"),
               ("with what it imports, s", "s"), ("without, s", "s"))  # fmt: skip
    rows = [(one.role, one.index, one.package, one.by or "the program", one.ns, one.own_ns)
            for one in sorted(run.imports, key=lambda one: -one.ns)[:STAGES]]  # fmt: skip
    return table("Python imports, the longest", columns, rows)
