"""How the job trained: throughput, step times, epochs, and the time to an accuracy on two clocks; and what it cost."""

from __future__ import annotations

from rich.console import Console

from dlobd.record.run import Run, Throughput, TimeToAccuracy
from dlobd.report import text

NS_PER_HOUR = 3_600_000_000_000


def training(run: Run, console: Console) -> None:
    """Prints what is known of a run's training; nothing where nothing is."""
    if run.throughput:
        _throughput(run.throughput, console)
    if sum(epoch.test_accuracy is not None for epoch in run.epochs) > 1:
        _epochs(run, console)
    if run.time_to_accuracy:
        text.line(console, f"\n{_reached(run, run.time_to_accuracy)}")


def lines(run: Run) -> list[str]:
    """Throughput, and the time to the target accuracy, in a sentence each."""
    said = []
    if found := run.throughput:
        said.append(f"throughput after {found.warmup_steps} steps: {_rate(found)}")
    if run.time_to_accuracy:
        said.append(_reached(run, run.time_to_accuracy))
    return said


def _rate(found: Throughput) -> str:
    spread = f"+/- {text.plain(found.uncertainty)} (jitter = {text.plain(found.jitter)})"
    steps = f"{found.steps} steps of {found.samples_per_step} samples"
    return f"samples/s: {text.plain(found.mean)} {spread}, {steps}; of this run alone, runs differ by more"


def _throughput(found: Throughput, console: Console) -> None:
    text.heading(console, f"Throughput after {found.warmup_steps} steps, as tf_cnn_benchmarks defines it")
    text.line(console, _rate(found))
    table = text.table(("milliseconds", "left", 16), *((name, "right", 10) for name in ("p50", "p90", "p95", "p99")),
                       ("max", "right", 10))  # fmt: skip
    for name, times in (("step", found.step), ("step with input", found.step_with_input)):
        lengths = times.p50_ns, times.p90_ns, times.p95_ns, times.p99_ns, times.max_ns
        text.row(table, name, *("-" if ns is None else f"{ns / 1e6:.3f}" for ns in lengths))
    console.print(table)


def _epochs(run: Run, console: Console) -> None:
    text.heading(console, "Epochs: seconds, mean loss, test accuracy, and when it was known on two clocks")
    table = text.table(("epoch", "right", 6), ("seconds", "right", 9), ("loss", "right", 9), ("accuracy", "right", 9),
                       ("evaluation", "right", 10), ("from submit", "right", 12),
                       ("from first touch", "right", 16))  # fmt: skip
    for epoch in run.epochs:
        accuracy = "-" if epoch.test_accuracy is None else f"{epoch.test_accuracy:.4f}"
        known = epoch.evaluation_ns, run.from_submit_ns(epoch), run.from_first_touch_ns(epoch)
        row = str(epoch.epoch), text.seconds(epoch.ns), f"{epoch.loss:.4f}", accuracy
        text.row(table, *row, *("-" if ns is None else text.seconds(ns) for ns in known))
    console.print(table)


def _reached(run: Run, found: TimeToAccuracy) -> str:
    if found.from_submit_ns is None:
        return f"target accuracy {found.target:.4f} was not reached: {found.reason}"
    touched, since_ns = run.first_touch, found.from_first_touch_ns
    second = "unknown from the first touch of the data"
    if touched and since_ns is not None:
        source = f"{touched.source}, to {text.short(touched.resolution_ns)}"
        second = f"{text.seconds(since_ns)} s from the first touch of the data ({source})"
    return (
        f"time to accuracy {found.target:.4f}, reached by epoch {found.epoch}: "
        f"{text.seconds(found.from_submit_ns)} s from submit, {second}"
    )


def cost(run: Run, per_hour: float, console: Console) -> None:
    """Prints what the run cost at a price of the whole cluster an hour, in whatever that price is in."""
    lengths = {
        "run": run.wall_ns,
        "training": run.metrics.training_ns,
    }
    if found := run.time_to_accuracy:
        lengths[f"to accuracy {found.target:g}"] = found.from_submit_ns
    rows = [
        (name, "unknown" if ns is None else f"{per_hour * ns / NS_PER_HOUR:.6g} for {text.seconds(ns)} s")
        for name, ns in lengths.items()
    ]
    text.rows(console, f"Cost at {per_hour:g} an hour of the whole cluster", rows)
