"""The cost of a run at a price of its cluster per hour."""

from __future__ import annotations

from dlobd.record.run import Run
from dlobd.report.tables import Table, columns

NS_PER_HOUR = 3_600_000_000_000


def cost(run: Run, per_hour: float) -> Table:
    """Return the run's cost at a price of the whole cluster per hour, in the currency of the price."""
    lengths = {"run": run.wall_ns, "training": run.metrics.training_ns}
    if reached := run.time_to_accuracy:
        lengths[f"to accuracy {reached.target:g}"] = reached.from_submit_ns
    rows = [(name, None if ns is None else per_hour * ns / NS_PER_HOUR, ns) for name, ns in lengths.items()]
    heads = columns("part | cost:number | seconds:s")
    return Table(f"Cost at {per_hour:g} per hour for the whole cluster", heads, rows)
