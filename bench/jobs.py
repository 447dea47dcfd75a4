"""P1, teardown, P2 and memory: four tables from one series of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.points import BARRIER, STOCK, TFOS
from bench.tables import Table, cells, compared
from dlobd.attribution.statistics import spread
from dlobd.bundle.run import Run
from dlobd.report.repeats import metric
from dlobd.report.summary import first_step_s, launcher_s, steady_rate, teardown_s

Runs = Mapping[str, Sequence[Run]]
LAUNCHERS = (STOCK, TFOS, BARRIER)


def tables(runs: Runs) -> list[Table]:
    """`runs` is the label of a point to its runs."""
    same = "Same job, data, Spark settings and JVM flags; only the launcher differs."
    feeding = {launcher: f"{launcher} feed" for launcher in LAUNCHERS}
    both = {
        f"{launcher} {source}": f"{launcher} {source}" for launcher in (TFOS, BARRIER) for source in ("read", "feed")
    }
    made = [
        compared("Submit to first step", f"From spark-submit's exec to the end of the first step. {same}",
               "s", _values(runs, feeding, first_step_s), STOCK),
        compared("Executors registered to first step",
               "The launcher's own part of it: start trainers, import TensorFlow, rendezvous, model, first batch.",
               "s", _values(runs, feeding, launcher_s), STOCK),
        compared("Teardown", "From the last step to spark-submit's exit: save, read back, evaluate, stop.",
               "s", _values(runs, feeding, teardown_s), STOCK),
    ]  # fmt: skip
    rates = _values(runs, both, steady_rate)
    for launcher in (TFOS, BARRIER):
        own = {source: rates[f"{launcher} {source}"] for source in ("read", "feed")}
        says = (
            "Samples of all ranks a second, from the end of the first step to the last; SoftMax, so that input matters."
        )
        made.append(compared(f"Training loop, {launcher}", says, "samples/s", own, "read", saved=False))
    memory = _values(runs, feeding, metric("executor_peak_bytes", 2**20))
    says = "Peak of one executor's container: JVM, Python workers and trainer. Sampled by the NodeManager."
    made.append(compared("Memory of an executor", says, "MiB", memory, STOCK))
    every = [run for each in runs.values() for run in each if run.status == "ok"]
    daemons = [metric("daemons_bytes", 2**20)(run) for run in every]
    says = "Resident memory of the daemons together, after a run."
    columns, rows = ["", "n", "median, MiB", "IQR", "min-max"], [["all six", *cells(spread(daemons))]]
    return [*made, Table("Memory of the daemons", says, columns, rows, {"all six": daemons})]


def _values(
    runs: Runs, labels: Mapping[str, str], value: Callable[[Run], float | None]
) -> dict[str, list[float | None]]:
    return {label: [value(run) for run in runs.get(point, ()) if run.status == "ok"] for label, point in labels.items()}
