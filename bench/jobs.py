"""Runs of the main job with each launcher on YARN and Spark, and each input: start, teardown, training loop, memory.

The job has a longer training loop without checkpoints, so the loop consists of input and steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.tables import Table, Values, compared, spreads
from dlobd import spans as kinds
from dlobd.compare.figures import metric
from dlobd.experiment import files
from dlobd.record.run import Run
from dlobd.schema import Experiment

Runs = Mapping[str, Sequence[Run]]
"""Runs by point label, one run per repeat in order."""

STOCK, TFOS, BARRIER = LAUNCHERS = ("tfos-stock", "tfos", "barrier")
WAYS = ((STOCK, "feed"), (TFOS, "feed"), (BARRIER, "feed"), (TFOS, "read"), (BARRIER, "read"))

DAEMONS = "Memory of the daemons"


def points() -> dict[str, Experiment]:
    """Return experiments by label; they differ in launcher, input, the launcher's memory and length of the loop."""
    return {
        f"{launcher} {source}": replace(
            files.load("softmax-mnist", [f"launcher={launcher}"]), input=source, epochs=6, checkpoint_every_steps=10**9
        )
        for launcher, source in WAYS
    }


FED = {launcher: f"{launcher} feed" for launcher in LAUNCHERS}


def first_step_s(run: Run) -> float | None:
    """Return the seconds from the window's start to the end of the first step."""
    at_ns = run.event_ns(kinds.FIRST_STEP_DONE)
    return (at_ns - run.window.start_ns) / 1e9 if run.window and at_ns is not None else None


def launcher_s(run: Run) -> float | None:
    """Return the seconds from the last executor's registration to the end of the first step."""
    from_ns, until_ns = run.event_ns(kinds.EXECUTOR_REGISTERED), run.event_ns(kinds.FIRST_STEP_DONE)
    return (until_ns - from_ns) / 1e9 if from_ns is not None and until_ns is not None else None


def steady_rate(run: Run) -> float | None:
    """Return samples per second of all ranks, without the first step, which TensorFlow traces and compiles."""
    begin, end = run.event_ns(kinds.FIRST_STEP_DONE), run.event_ns(kinds.LAST_STEP_DONE)
    steps, samples = run.metrics.steps, run.metrics.train_samples
    if begin is None or end is None or samples is None or not steps:
        return None
    return samples * (steps - 1) / steps / (end - begin) * 1e9 if samples else None


def teardown_s(run: Run) -> float | None:
    """Return the seconds from the last step to the window's end: save, read back, evaluate, stop, exit."""
    last = run.event_ns(kinds.LAST_STEP_DONE)
    return (run.window.end_ns - last) / 1e9 if run.window and last is not None else None


@dataclass(frozen=True)
class Figure:
    """Table of one figure. `points` maps row labels to points; `reference` is the label of the baseline."""

    title: str
    says: str
    value: Callable[[Run], float | None]
    unit: str = "s"
    points: Mapping[str, str] = field(default_factory=lambda: FED)
    reference: str = STOCK
    saved: bool = True


def _loop(launcher: str) -> Figure:
    says = "Samples per second of all ranks, from the end of the first step to the last step."
    both = {source: f"{launcher} {source}" for source in ("read", "feed")}
    return Figure(f"Training loop, {launcher}", says, steady_rate, "samples/s", both, "read", saved=False)


SAME = "Same job, data, Spark settings and JVM flags; only the launcher differs."

FIGURES = (
    Figure("Submit to first step", f"From spark-submit's exec to the end of the first step. {SAME}", first_step_s),
    Figure(
        "Executors registered to first step",
        "The launcher's part: start of the trainers, import of TensorFlow, rendezvous, model, first batch.",
        launcher_s,
    ),
    Figure(
        "Teardown",
        "From the last step to spark-submit's exit: save the model, read it back, evaluate it, stop.",
        teardown_s,
    ),
    _loop(TFOS),
    _loop(BARRIER),
    Figure(
        "Memory of an executor",
        "Peak of an executor's container: JVM, Python workers and trainer. Sampled by the NodeManager.",
        metric("executor_peak_bytes", 2**20),
        "MiB",
    ),
)


def values(runs: Runs) -> dict[str, Values]:
    """Return the values of each table by title; None for a run with a status other than ok."""
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
    """Build the tables from `values`."""
    made = [
        compared(one.title, one.says, one.unit, found[one.title], one.reference, saved=one.saved) for one in FIGURES
    ]
    says = "Resident memory of all daemons after a run."
    return [*made, spreads(DAEMONS, says, "n", "median, MiB", found[DAEMONS])]
