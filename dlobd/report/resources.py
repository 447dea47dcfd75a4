"""The view `resources`: what the machine and the processes used, and what Spark says of its tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from dlobd.record.resources import HostUse, ProcessUse, ResourceUse, SparkMetrics
from dlobd.record.run import Run
from dlobd.report import core_waits, text
from dlobd.report.summary import title

_SHOWN_STAGES = 12
"""Of more stages only those with the largest run time are printed; run.json has all."""


def resources(run: Run, console: Console) -> None:
    """Prints resource use by layer and by process, and Spark's own metrics of its tasks."""
    if run.resources is None:
        text.line(console, "\nResource use: not measured.")
    else:
        _layers(run.resources, console)
        _processes(run.resources, console)
        for line in _gpus(run.resources):
            text.line(console, line)
        for line in _host(run.resources):
            text.line(console, line)
    if run.core_waits:
        core_waits.by_role(run.core_waits, console)
    _spark(run.spark_metrics, console)


def in_one_line(found: ResourceUse) -> str:
    """CPU and memory of the whole window, and what measuring them cost."""
    host = found.hosts[0]
    busy = text.percent(host.cpu_busy_ns / (host.sampled_ns * host.cores)) if host.sampled_ns else "unknown"
    return (
        f"resources: CPU {busy} % busy of {host.cores} cores, at most {_gb(host.memory_used_peak_bytes)} of "
        f"{_gb(host.memory_bytes)} GB of memory in use (--view resources)"
    )


def _layers(found: ResourceUse, console: Console) -> None:
    text.heading(console, f"Resource use by layer, of {found.hosts[0].machine}")
    gpus = bool(found.gpus)
    columns = [("layer", "left", 12), ("seconds", "right", 9), ("CPU %", "right", 6), ("disk read", "right", 10),
               ("written", "right", 9), ("loopback", "right", 9), ("network", "right", 8)]  # fmt: skip
    table = text.table(*columns, *([("GPU %", "right", 6)] if gpus else []))
    for row in found.layers:
        net = (row.net_received_bytes, row.net_sent_bytes)
        sizes = (row.disk_read_bytes, row.disk_written_bytes, row.loopback_bytes, _sum(net))
        shares = [row.cpu_busy_share, *([row.gpu_busy_share] if gpus else [])]
        cpu, *gpu = ("-" if share is None else text.percent(share) for share in shares)
        rates = (_rate(size, row.sampled_ns) for size in sizes)
        text.row(table, title(row.layer), text.seconds(row.ns), cpu, *rates, *gpu)
    console.print(table)
    text.line(console, "Of the whole machine while the wall time was the layer's: CPU % of all cores, the rest MB/s.")


def _processes(found: ResourceUse, console: Console) -> None:
    text.heading(console, "Resource use by role, in the window; memory of the largest process")
    table = text.table(("role", "left", 22), ("count", "right", 6), ("CPU s", "right", 9), ("memory MB", "right", 10),
                       ("disk read MB", "right", 13), ("written MB", "right", 11))  # fmt: skip
    by_role: dict[str, list[ProcessUse]] = defaultdict(list)
    for process in found.processes:
        by_role[process.role].append(process)
    for role, alike in sorted(by_role.items(), key=lambda item: -sum(one.cpu_ns for one in item[1])):
        _role(table, role, alike)
    console.print(table)


def _role(table: Table, role: str, alike: list[ProcessUse]) -> None:
    text.row(
        table,
        role,
        str(sum(one.count for one in alike)),
        text.seconds(sum(one.cpu_ns for one in alike)),
        f"{max(one.rss_peak_bytes for one in alike) / 1e6:.1f}",
        _total_mb([one.read_bytes for one in alike]),
        _total_mb([one.write_bytes for one in alike]),
    )


def _host(found: ResourceUse) -> list[str]:
    host = found.hosts[0]
    seen_ns = host.processes_cpu_ns + host.unseen_cpu_ns
    cpu = (
        f"CPU time: {text.seconds(host.cpu_busy_ns)} s of the machine, of which {text.seconds(seen_ns)} s are the "
        f"processes above ({_share(seen_ns, host)} %; {text.seconds(host.unseen_cpu_ns)} s between samples); "
        f"{text.seconds(host.cpu_stolen_ns)} s went to other virtual machines."
    )
    sampled = (
        f"sampled every {text.short(found.period_ns)}, {found.samples} times, at most "
        f"{text.short(found.longest_gap_ns)} apart; sampling took {text.seconds(found.cost_ns)} s of CPU."
    )
    lines = [cpu, sampled]
    layers_ns = sum(row.ns for row in found.layers)
    if host.sampled_ns < layers_ns:
        lines.append(f"not sampled: {text.seconds(layers_ns - host.sampled_ns)} s of the window.")
    return lines


def _gpus(found: ResourceUse) -> list[str]:
    return [
        f"GPU {gpu.index}, {gpu.name}: "
        f"{'unknown' if gpu.busy_share is None else text.percent(gpu.busy_share)} % busy, at most "
        f"{'unknown' if gpu.memory_used_peak_bytes is None else _gb(gpu.memory_used_peak_bytes)} of "
        f"{_gb(gpu.memory_bytes)} GB in use"
        for gpu in found.gpus
    ]


def _share(ns: int, host: HostUse) -> str:
    return text.percent(ns / host.cpu_busy_ns) if host.cpu_busy_ns else "-"


def _rate(size: int | None, ns: int) -> str:
    """MB/s; bytes per nanosecond are GB/s."""
    return "-" if size is None or not ns else f"{size / ns * 1e3:.2f}"


def _total_mb(sizes: Sequence[int | None]) -> str:
    total = _sum(sizes)
    return "unknown" if total is None else f"{total / 1e6:.1f}"


def _sum(sizes: Sequence[int | None]) -> int | None:
    """Of those that are known."""
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f}"


def _spark(found: SparkMetrics | None, console: Console) -> None:
    if found is None:
        text.line(console, "\nSpark's task metrics: none, as Spark logged no ended task.")
        return
    text.heading(console, "Spark's task metrics, in sparkMeasure's names: ms, bytes, counts")
    shown = {name: value for name, value in found.metrics.items() if value}
    table = text.table(("", "left", 28), ("", "right", 12), ("", "left", 24), ("", "right", 12))
    table.show_header = False
    cells = [(name, f"{value:,}") for name, value in shown.items()]
    for left, right in zip(cells[::2], [*cells[1::2], ("", "")], strict=False):
        text.row(table, *left, *right)
    console.print(table)
    if zero := [name for name, value in found.metrics.items() if not value]:
        text.line(console, f"0: {', '.join(zero)}")
    text.line(console, "Executors' times of parallel tasks add up, so that they may exceed the wall.")
    _stages(found, console)


def _stages(found: SparkMetrics, console: Console) -> None:
    table = text.table(("stage", "right", 7), ("call", "left", 20), ("tasks", "right", 7), ("run s", "right", 9),
                       ("CPU s", "right", 9), ("GC s", "right", 8), ("skew s", "right", 9))  # fmt: skip
    largest = sorted(found.stages, key=lambda stage: -stage.metrics["executorRunTime"])[:_SHOWN_STAGES]
    for stage in sorted(largest, key=lambda stage: (stage.stage, stage.attempt)):
        times = (stage.metrics[name] for name in ("executorRunTime", "executorCpuTime", "jvmGCTime"))
        text.row(
            table,
            f"{stage.stage}.{stage.attempt}",
            stage.call or "unknown",
            f"{stage.metrics['numTasks']:,}",
            *(f"{ms / 1e3:.3f}" for ms in times),
            text.seconds(stage.skew_ns),
        )
    text.heading(console, "Stages, sums over their tasks; skew: the slowest task - the median one")
    console.print(table)
    if left := len(found.stages) - len(largest):
        text.line(console, f"{left} more stages with less run time are in run.json")
    failed = f"; {found.failed_tasks} tasks failed" * bool(found.failed_tasks)
    text.line(console, f"skew of all stages: {text.seconds(found.skew_ns)} s{failed}")
