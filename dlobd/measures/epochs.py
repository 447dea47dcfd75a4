"""Epochs, their test accuracy, and the time to a target accuracy on two clocks. Pure.

One clock starts with the window, at submit. The other starts at the first touch of the data, as MLPerf's does, which
leaves initialisation out (https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc). Both stop
when the evaluation that reached the target has ended; evaluations before it are within.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlobd import spans as kinds
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.log4j import RESOLUTION_NS
from dlobd.evidence.recorder import Instant, RecordedProcess
from dlobd.record.run import Epoch, TimeToAccuracy
from dlobd.schema import Event
from dlobd.timeline.builder import OWN_MARK
from dlobd.timeline.driver import AUDIT_LOG

FIRST_TOUCH = "first touch of the data"
EXECUTOR_LOG = "executor log"


def epochs(evidence: Evidence) -> tuple[Epoch, ...]:
    """Return the epochs that the chief completed, by its own marks.

    The model that was stored after training is that of the last epoch: its accuracy belongs to that epoch, unless the
    epoch was evaluated by itself, or training went on after its end.
    """
    chief = evidence.chief
    first = chief.instant(kinds.FIRST_BATCH) if chief else None
    if chief is None or first is None:
        return ()
    evaluated = {mark.attrs["epoch"]: mark for mark in chief.instants if mark.name == kinds.EPOCH_EVALUATED}
    found: list[Epoch] = []
    begin_ns = first.at_ns
    for done in (mark for mark in chief.instants if mark.name == kinds.EPOCH_DONE):
        test = evaluated.get(done.attrs["epoch"])
        found.append(_epoch(done, begin_ns, test))
        begin_ns = test.at_ns if test else done.at_ns
    if found and found[-1].test_accuracy is None and not _trained_after(chief, found[-1].end_ns):
        found[-1] = _as_stored(found[-1], evidence, chief)
    return tuple(found)


def _epoch(done: Instant, begin_ns: int, test: Instant | None) -> Epoch:
    samples = test.attrs["samples"] if test else None
    return Epoch(
        epoch=done.attrs["epoch"],
        end_ns=done.at_ns,
        ns=done.at_ns - begin_ns,
        loss=done.attrs["loss"],
        test_samples=samples,
        test_accuracy=test.attrs["right"] / samples if test and samples else None,
        evaluation_ns=test.at_ns - done.at_ns if test else None,
    )


def _trained_after(chief: RecordedProcess, at_ns: int) -> bool:
    return any(step.start_ns >= at_ns for step in chief.steps())


def _as_stored(last: Epoch, evidence: Evidence, chief: RecordedProcess) -> Epoch:
    result, ended = evidence.results.get(0), chief.instant(kinds.EVALUATED)
    test = result.get("test") if result else None
    if not test or ended is None:
        return last
    known_ns = ended.at_ns - last.end_ns
    return replace(last, test_samples=test["samples"], test_accuracy=test["accuracy"], evaluation_ns=known_ns)


def first_touch(evidence: Evidence) -> Event | None:
    """Return the first open of a file of the training data.

    The NameNode's audit log has it. Without HDFS or this log it is an executor's turn to its input split, which may be
    seconds before the JVM opens it, or the start of a rank's open: the second clock is then too long, never too short.
    Names and sizes of files, which the driver lists, are no data.
    """
    earliest = min(_opens(evidence), default=None)
    if earliest is not None:
        return Event(FIRST_TOUCH, earliest, AUDIT_LOG, resolution_ns=RESOLUTION_NS)
    return min((*_splits(evidence), *_reads(evidence)), key=lambda event: event.at_ns, default=None)


def _of_training(evidence: Evidence, path: str) -> bool:
    return "train_dir" in evidence.job and path.startswith(f"{evidence.job['train_dir']}/")


def _opens(evidence: Evidence) -> Iterator[int]:
    for line in evidence.hdfs.audits:
        if line.command == "open" and _of_training(evidence, line.path) and line.at_ns >= evidence.window["exec_ns"]:
            yield line.at_ns


def _splits(evidence: Evidence) -> Iterator[Event]:
    for log in evidence.executors.values():
        for split in log.splits.values():
            if _of_training(evidence, split.path):
                yield Event(FIRST_TOUCH, split.at_ns, EXECUTOR_LOG, resolution_ns=RESOLUTION_NS)


def _reads(evidence: Evidence) -> Iterator[Event]:
    for process in evidence.processes:
        read = next((span for span in process.spans if span.attrs.get("purpose") == kinds.INPUT), None)
        if read is None:
            continue
        # WebHDFS is asked where a file is before its bytes come
        asked = [s.start_ns for s in process.named(kinds.OPEN) if s.thread == read.thread and s.end_ns <= read.start_ns]
        yield Event(FIRST_TOUCH, max(asked, default=read.start_ns), OWN_MARK)


def time_to_accuracy(
    target: float, found: Sequence[Epoch], start_ns: int, touched: Event | None, recorded: bool = True
) -> TimeToAccuracy | None:
    """Return the time to accuracy on both clocks; None without a target.

    `target`: share of the test samples; 0: no target. `start_ns`: start of the window. `recorded`: True if the
    chief's own marks exist."""
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
        why = "no epoch was evaluated" if recorded else "nothing was recorded of the epochs"
    return TimeToAccuracy(target, None, None, None, why)
