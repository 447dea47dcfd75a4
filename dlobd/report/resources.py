"""The view `resources`: what Spark says of its tasks."""

from __future__ import annotations

from rich.console import Console

from dlobd.bundle.run import Run, SparkMetrics
from dlobd.report import text

_SHOWN_STAGES = 12
"""Of more stages only those with the largest run time are printed; run.json has all."""


def resources(run: Run, console: Console) -> None:
    """Prints Spark's own metrics of its tasks."""
    _spark(run.spark_metrics, console)


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
