"""Splits the wall time into start-up, training or Spark jobs, and teardown. Pure."""

from collections.abc import Sequence
from typing import Literal

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.recorder import RecordedProcess
from dlobd.record.run import Application, Phase

YARN_ID = "application_"


def phases(evidence: Evidence) -> tuple[Phase, ...]:
    """Return the phases of the window; empty if no training and no Spark job began."""
    start_ns, end_ns = evidence.window["exec_ns"], evidence.window["exit_ns"]
    name: Literal["training", "Spark jobs"] = "training"
    times = [at_ns for process in evidence.processes for at_ns in _training(process)]
    if not times:
        name, jobs = "Spark jobs", [job for one in evidence.applications for job in one.driver.log.jobs]
        times = [at_ns for job in jobs for at_ns in (job.start_ns, job.last_ns)]
    if not times:
        return ()
    first_ns, last_ns = (min(max(at_ns, start_ns), end_ns) for at_ns in (min(times), max(times)))
    return (
        Phase("start-up", first_ns - start_ns),
        Phase(name, last_ns - first_ns),
        Phase("teardown", end_ns - last_ns),
    )


def _training(process: RecordedProcess) -> Sequence[int]:
    """Return the first and the last moment of a process's training, as far as recorded; empty if it did not train."""
    steps = process.steps()
    first, last = process.instant(kinds.FIRST_BATCH), process.instant(kinds.LAST_STEP_DONE)
    begins_ns = [first.at_ns] if first else [int(steps.start_ns.min())] if steps else []
    ends_ns = [last.at_ns] if last else [int(steps.end_ns.max())] if steps else []
    return (*begins_ns, *ends_ns)


def applications(evidence: Evidence) -> tuple[Application, ...]:
    """Return the YARN applications of a run."""
    found = ((str(one.window["application_id"]), one.rm_app) for one in evidence.applications)
    return tuple(Application(id_, yarn.get("trackingUrl")) for id_, yarn in found if id_.startswith(YARN_ID))
