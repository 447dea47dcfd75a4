"""P1, teardown, P2 and memory: tables from one series of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.points import BARRIER, STOCK, TFOS
from bench.tables import Table, Values, cells, compared
from dlobd.compare.figures import metric
from dlobd.compare.median import spread
from dlobd.record.run import Run
from dlobd.report.summary import first_step_s, launcher_s, steady_rate, teardown_s

Runs = Mapping[str, Sequence[Run]]
"""Label of a point to its runs, one of each repeat in their order."""

LAUNCHERS = (STOCK, TFOS, BARRIER)

DAEMONS = "Memory of the daemons"


@dataclass(frozen=True)
class Figure:
    """One table: of each label of the table, a value of the runs of a point, against the label `reference`."""

    title: str
    says: str
    unit: str
    value: Callable[[Run], float | None]
    points: Mapping[str, str]
    reference: str
    saved: bool = True


def _feeding(title: str, says: str, unit: str, value: Callable[[Run], float | None]) -> Figure:
    return Figure(title, says, unit, value, {launcher: f"{launcher} feed" for launcher in LAUNCHERS}, STOCK)


def _loop(launcher: str) -> Figure:
    says = "Samples of all ranks a second, from the end of the first step to the last; SoftMax, so that input matters."
    both = {source: f"{launcher} {source}" for source in ("read", "feed")}
    return Figure(f"Training loop, {launcher}", says, "samples/s", steady_rate, both, "read", saved=False)


SAME = "Same job, data, Spark settings and JVM flags; only the launcher differs."

FIGURES = (
    _feeding(
        "Submit to first step", f"From spark-submit's exec to the end of the first step. {SAME}", "s", first_step_s
    ),
    _feeding(
        "Executors registered to first step",
        "The launcher's own part of it: start trainers, import TensorFlow, rendezvous, model, first batch.",
        "s",
        launcher_s,
    ),
    _feeding(
        "Teardown", "From the last step to spark-submit's exit: save, read back, evaluate, stop.", "s", teardown_s
    ),
    _loop(TFOS),
    _loop(BARRIER),
    _feeding(
        "Memory of an executor",
        "Peak of one executor's container: JVM, Python workers and trainer. Sampled by the NodeManager.",
        "MiB",
        metric("executor_peak_bytes", 2**20),
    ),
)


def values(runs: Runs) -> dict[str, Values]:
    """Title of a table to what it is made from; a run that is not ok has no value."""
    made: dict[str, Values] = {
        one.title: {
            label: [one.value(run) if run.status == "ok" else None for run in runs.get(point, ())]
            for label, point in one.points.items()
        }
        for one in FIGURES
    }
    every = [run for each in runs.values() for run in each if run.status == "ok"]
    return made | {DAEMONS: {"all six": [metric("daemons_bytes", 2**20)(run) for run in every]}}


def tables(found: Mapping[str, Values]) -> list[Table]:
    """Of `values`."""
    made = [
        compared(one.title, one.says, one.unit, found[one.title], one.reference, saved=one.saved) for one in FIGURES
    ]
    says = "Resident memory of the daemons together, after a run."
    rows = [[label, *cells(spread(own))] for label, own in found[DAEMONS].items()]
    return [*made, Table(DAEMONS, says, ["", "n", "median, MiB", "IQR", "min-max"], rows, found[DAEMONS])]
