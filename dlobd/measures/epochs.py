"""Computes phases of a run, epochs, their test accuracy, and the time to a target accuracy on two clocks. Pure.

One clock starts with the window, at submit. The other starts at the first touch of the data, as MLPerf's does, which
leaves initialisation out (https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc). Both stop
when the evaluation that reached the target has ended; earlier evaluations are included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.log4j import RESOLUTION_NS
from dlobd.evidence.recorder import RecordedProcess
from dlobd.record.run import Application, Epoch, Phase, TimeToAccuracy
from dlobd.schema import Event
from dlobd.timeline.builder import OWN_MARK
from dlobd.timeline.driver import AUDIT_LOG

FIRST_TOUCH = "first touch of the data"
EXECUTOR_LOG = "executor log"
YARN_ID = "application_"


def phases(evidence: Evidence) -> tuple[Phase, ...]:
    """Return start-up, training or Spark jobs, and teardown of the window; empty without training and jobs."""
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


def epochs(evidence: Evidence) -> tuple[Epoch, ...]:
    """Return the epochs of the chief. An evaluation after training counts for the last epoch."""
    chief = evidence.chief
    first = chief.instant(kinds.FIRST_BATCH) if chief else None
    if chief is None or first is None:
        return ()
    evaluated = {mark.attrs["epoch"]: mark for mark in chief.instants if mark.name == kinds.EPOCH_EVALUATED}
    found: list[Epoch] = []
    begin_ns = first.at_ns
    for done in (mark for mark in chief.instants if mark.name == kinds.EPOCH_DONE):
        test = evaluated.get(done.attrs["epoch"])
        samples = test.attrs["samples"] if test else None
        accuracy = test.attrs["right"] / samples if test and samples else None
        evaluation_ns = test.at_ns - done.at_ns if test else None
        number, loss, length_ns = done.attrs["epoch"], done.attrs["loss"], done.at_ns - begin_ns
        found.append(Epoch(number, done.at_ns, length_ns, loss, samples, accuracy, evaluation_ns))
        begin_ns = test.at_ns if test else done.at_ns
    result, ended = evidence.results.get(0), chief.instant(kinds.EVALUATED)
    stored = result.get("test") if result else None
    if not (found and stored and ended) or found[-1].test_accuracy is not None:
        return tuple(found)
    last = found[-1]
    if not (chief.steps().start_ns >= last.end_ns).any():
        known_ns = ended.at_ns - last.end_ns
        samples, accuracy = stored["samples"], stored["accuracy"]
        found[-1] = replace(last, test_samples=samples, test_accuracy=accuracy, evaluation_ns=known_ns)
    return tuple(found)


def first_touch(evidence: Evidence) -> Event | None:
    """Return the first open of a training file, from the NameNode's audit log, else from records of executors and
    ranks."""
    since_ns, opened = evidence.window["exec_ns"], [a for a in evidence.hdfs.audits if a.command == "open"]
    opens = [line.at_ns for line in opened if line.at_ns >= since_ns and _of_training(evidence, line.path)]
    if opens:
        return Event(FIRST_TOUCH, min(opens), AUDIT_LOG, resolution_ns=RESOLUTION_NS)
    splits = [split for log in evidence.executors.values() for split in log.splits.values()]
    starts = [split.at_ns for split in splits if _of_training(evidence, split.path)]
    turns = [Event(FIRST_TOUCH, at_ns, EXECUTOR_LOG, resolution_ns=RESOLUTION_NS) for at_ns in starts]
    return min((*turns, *_reads(evidence)), key=lambda event: event.at_ns, default=None)


def _of_training(evidence: Evidence, path: str) -> bool:
    return "train_dir" in evidence.job and path.startswith(f"{evidence.job['train_dir']}/")


def _reads(evidence: Evidence) -> Iterator[Event]:
    for process in evidence.processes:
        reads = np.flatnonzero(process.spans.equals("purpose", kinds.INPUT))
        if not len(reads):
            continue
        read, opened = process.spans[int(reads[0])], process.named(kinds.OPEN)
        # the OPEN request to the NameNode precedes the first byte
        before = opened.where(opened.end_ns <= read.start_ns)
        asked = [span.start_ns for span in before if span.thread == read.thread]
        yield Event(FIRST_TOUCH, max(asked, default=read.start_ns), OWN_MARK)


def time_to_accuracy(
    target: float, found: Sequence[Epoch], start_ns: int, touched: Event | None, recorded: bool = True
) -> TimeToAccuracy | None:
    """Return the time to accuracy on both clocks; None without a target. `recorded`: True if the chief recorded
    spans."""
    if not target:
        return None
    tested = [(epoch, epoch.test_accuracy) for epoch in found if epoch.test_accuracy is not None]
    reached = next((epoch for epoch, accuracy in tested if accuracy >= target), None)
    if reached is not None and reached.known_ns is not None:
        since_touch_ns = reached.known_ns - touched.at_ns if touched else None
        return TimeToAccuracy(target, reached.epoch, reached.known_ns - start_ns, since_touch_ns, None)
    best = max(tested, key=lambda one: one[1], default=None)
    if best:
        why = f"the best test accuracy was {best[1]:.4f}, after epoch {best[0].epoch}"
    else:
        why = "no epoch was evaluated" if recorded else "no epoch was recorded"
    return TimeToAccuracy(target, None, None, None, why)
