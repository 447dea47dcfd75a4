"""What must hold before a run's numbers count: sanity comes before speed. Pure, over a bundle's evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from dlobd.attribution.importers.evidence import Evidence
from dlobd.experiment import channels
from dlobd.experiment.files import most_steps, steps_per_epoch
from dlobd.record.run import Check
from dlobd.schema import Clip, Experiment, OwnJob, Runnable

INCONSISTENT_SHARE = 0.01
"""Evidence whose spans contradict each other by more than this share of the wall cannot be attributed."""


def check(experiment: Runnable, evidence: Evidence, clips: Sequence[Clip], wall_ns: int) -> list[Check]:
    """All checks, in the order in which a reader would ask for them.

    Args:
        clips: of the attribution.
    """
    if isinstance(experiment, OwnJob):
        return [_consistent(clips, wall_ns)]  # only its author knows the right result
    return [*_checks(experiment, evidence), _consistent(clips, wall_ns)]


def _consistent(clips: Sequence[Clip], wall_ns: int) -> Check:
    found_ns = sum(clip.ns for clip in clips if clip.kind == "inconsistent")
    detail = f"spans contradict each other for {found_ns / 1e9:.3f} s; limit: {INCONSISTENT_SHARE:.0%} of the wall"
    return Check("evidence is consistent", found_ns <= INCONSISTENT_SHARE * wall_ns, detail)


def _checks(experiment: Experiment, evidence: Evidence) -> Iterator[Check]:
    results = evidence.results
    ranks = range(experiment.workers)
    absent = [rank for rank in ranks if rank not in results]
    yield Check("every rank reported", not absent, f"missing: {absent}" if absent else f"{len(results)} ranks")
    if absent:
        return
    found = [results[rank]["steps"] for rank in ranks]
    wanted, why = _wanted_steps(experiment, [results[rank] for rank in ranks])
    yield Check("steps", all(n == wanted for n in found), f"expected {wanted} on each rank{why}, found {found}")
    samples = sum(results[rank]["samples"] for rank in ranks)
    expected = wanted * experiment.workers * experiment.batch_size
    yield Check("train samples", samples == expected, f"expected {expected}, found {samples}")
    yield from _loss([results[rank]["losses"] for rank in ranks], experiment.exchange not in channels.ASYNCHRONOUS)
    yield from _evaluation(experiment, results[0].get("test"))


def _wanted_steps(experiment: Experiment, results: Sequence[dict[str, Any]]) -> tuple[int, str]:
    """How many steps each rank must have taken, and why it is not all of them, if it is not.

    Ended by time, they are those of rank 0, if so much time has passed; by accuracy, those up to the first evaluation
    that reached it."""
    most, chief = most_steps(experiment), results[0]
    for found in chief.get("evaluations", ()) if experiment.target_accuracy else ():
        taken = found["epoch"] * steps_per_epoch(experiment)
        if found["samples"] and found["right"] / found["samples"] >= experiment.target_accuracy and taken <= most:
            most, why = taken, f" (accuracy {experiment.target_accuracy:g} after epoch {found['epoch']})"
            break
    else:
        why = ""
    slowest_ns = max(result.get("loop_ns") or 0 for result in results)
    if experiment.max_seconds and 1 <= chief["steps"] < most and slowest_ns >= experiment.max_seconds * 10**9:
        return chief["steps"], f" ({experiment.max_seconds} s)"
    return most, why


def _loss(losses: list[list[float]], synchronous: bool) -> Iterator[Check]:
    wild = next(((k, r, x) for r, rank in enumerate(losses) for k, x in enumerate(rank) if not math.isfinite(x)), None)
    detail = "step {} of rank {} has a loss of {}".format(*wild) if wild else "all steps of all ranks"
    yield Check("loss is finite", wild is None, detail)
    if wild:
        return
    if not losses[0]:
        yield Check("loss falls", False, "no loss was reported")
        return
    if synchronous:
        # the loss is reduced over all ranks, so every rank must have seen the same one
        same = all(len(rank) == len(losses[0]) and max(map(_gap, rank, losses[0])) < 1e-5 for rank in losses)
        yield Check("ranks agree on the loss", same, "largest relative difference must be below 1e-5")
    if len(losses[0]) == 1:
        return  # one step has no course
    tenth = max(1, len(losses[0]) // 10)
    first, last = fmean(losses[0][:tenth]), fmean(losses[0][-tenth:])
    yield Check("loss falls", last < first, f"first tenth {first:.4f}, last tenth {last:.4f}")


def _gap(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b), 1e-12)


def _evaluation(experiment: Experiment, test: dict[str, Any] | None) -> Iterator[Check]:
    if test is None:
        yield Check("evaluation", False, "the chief reported no evaluation")
        return
    n = test["samples"]
    yield Check("test samples", n == experiment.test_samples, f"expected {experiment.test_samples}, found {n}")
    accuracy, least = test["accuracy"], experiment.min_accuracy
    yield Check("test accuracy", accuracy >= least, f"{accuracy:.4f}, expected at least {least:.4f}")
