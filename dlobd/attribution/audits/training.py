"""Training: what each rank reports at its end against what it marked on the way."""

from __future__ import annotations

from collections.abc import Iterator
from math import isclose
from statistics import fmean
from typing import Any

from dlobd import spans as kinds
from dlobd.attribution.audits.base import EQUAL, NOT_MORE, Figures, Rule, training_job, worst
from dlobd.attribution.audits.clocks import APART_NS
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.recorder import RecordedProcess
from dlobd.bundle import files

PAUSES = (kinds.CHECKPOINT, kinds.EVALUATE, kinds.AGREE)
"""What the chief does between steps."""


def _ranks(evidence: Evidence) -> Iterator[tuple[RecordedProcess, dict[str, Any]]]:
    """The process of each rank with its done-marker."""
    by_role = {(result["role"], result["index"]): result for result in evidence.results.values()}
    for process in evidence.processes if training_job(evidence) else ():
        if result := by_role.get((process.process.role, process.process.index)):
            yield process, result


def _loops(evidence: Evidence) -> Figures:
    apart = []
    for process, result in _ranks(evidence):
        first, last = process.instant(kinds.FIRST_BATCH), process.instant(kinds.LAST_STEP_DONE)
        if first and last and result.get("loop_ns"):
            apart.append(abs(last.at_ns - first.at_ns - result["loop_ns"]))
    return worst(apart, APART_NS)


def _loop_steps(evidence: Evidence) -> Figures:
    """The loop begins with the first step and ends with the last."""
    outside = []
    for process, _ in _ranks(evidence):
        steps = [step for step in process.steps() if not step.truncated]
        first, last = process.instant(kinds.FIRST_BATCH), process.instant(kinds.LAST_STEP_DONE)
        if steps and first and last:
            # a checkpoint or an evaluation of the last step may come before the mark
            ends = [span.end_ns for name in PAUSES for span in process.named(name) if span.end_ns <= last.at_ns]
            outside += [first.at_ns - steps[0].start_ns, steps[-1].end_ns - last.at_ns]
            outside.append(last.at_ns - max([steps[-1].end_ns, *ends]) - APART_NS)
    return worst(outside, 0)


def _epoch_losses(evidence: Evidence) -> Figures:
    """Of each epoch the mean of the losses that the rank reports, and the one that it marked."""
    same = seen = 0
    for process, result in _ranks(evidence):
        marks = [mark for mark in process.instants if mark.name == kinds.EPOCH_DONE]
        steps = evidence.job["steps"] // evidence.job["epochs"]
        for mark in marks:
            epoch = mark.attrs["epoch"]
            losses = result["losses"][(epoch - 1) * steps : epoch * steps]
            seen += 1
            same += len(losses) == steps and isclose(fmean(losses), mark.attrs["loss"], rel_tol=1e-9)
    return Figures(same, seen) if seen else Figures()


def _evaluations(evidence: Evidence) -> Figures:
    """Of each evaluation between epochs what the chief reports, and what it marked."""
    reported = marked = 0
    for process, result in _ranks(evidence):
        said = [(e["epoch"], e["samples"], e["right"]) for e in result.get("evaluations") or ()]
        marks = [
            (mark.attrs["epoch"], mark.attrs["samples"], mark.attrs["right"])
            for mark in process.instants
            if mark.name == kinds.EPOCH_EVALUATED
        ]
        reported += max(len(said), len(marks))
        marked += len(set(said) & set(marks))
    return Figures(reported, marked) if reported else Figures()


def _right(evidence: Evidence) -> Figures:
    """Test samples that the stored model had right: by the chief's report, and batch by batch as it was predicted."""
    chief, test = evidence.chief, evidence.results.get(0, {}).get("test")
    evaluated = chief.named(kinds.EVALUATE)[-1:] if chief else []
    batches = [
        span.attrs["right"]
        for whole in evaluated
        for span in chief.named(kinds.PREDICT)  # type: ignore[union-attr]  # it has evaluated
        if whole.start_ns <= span.start_ns < whole.end_ns and "right" in span.attrs
    ]
    said = round(test["accuracy"] * test["samples"]) if test else None
    return Figures(said, sum(batches) if batches else None)


def _marker_bytes(evidence: Evidence) -> Figures:
    markers: dict[str, str] = evidence.markers
    length = {f"rank-{result['rank']}.json": result for result in evidence.results.values()}
    wrote: dict[tuple[str, int], int] = {}
    for process in evidence.processes:
        for span in process.named(kinds.WRITE_DONE_MARKER):
            if "bytes" in span.attrs:
                wrote[process.process.role, process.process.index] = int(span.attrs["bytes"])
    pairs = [
        (len(markers[name].encode()), wrote[result["role"], result["index"]])
        for name, result in length.items()
        if name in markers and (result["role"], result["index"]) in wrote
    ]
    return Figures(sum(kept for kept, _ in pairs), sum(written for _, written in pairs)) if pairs else Figures()


def _checkpoints(evidence: Evidence) -> Figures:
    """The chief stores one each `checkpoint_every_steps` steps."""
    chief, every = evidence.chief, training_job(evidence).get("checkpoint_every_steps")
    steps = evidence.results.get(0, {}).get("steps")
    if chief is None or every is None or steps is None:
        return Figures()
    return Figures(len(chief.named(kinds.CHECKPOINT)), steps // every if every else 0)


def _stored(evidence: Evidence) -> Figures:
    """In a checkpoint, and where a model is saved, files are written."""
    chief = evidence.chief
    phases = [span for name in (kinds.CHECKPOINT, kinds.SAVE_MODEL) for span in (chief.named(name) if chief else ())]
    writes = [span for span in chief.spans if span.kind in (kinds.WRITE_FILE, kinds.WRITE_LOCAL_FILE)] if chief else []
    empty = sum(not any(p.start_ns <= w.start_ns < p.end_ns for w in writes) for p in phases)
    return Figures(empty, 0) if phases else Figures()


RULES = (
    Rule(
        "loop time", "A rank's own time for its loop is that between its marks for the first batch and the last step.",
        "done-markers and span files: ns apart", "what a busy machine may hold a thread up, ns", NOT_MORE, _loops,
    ),
    Rule(
        "loop and steps", "The first batch comes before the first step, and the last step's mark right after it.",
        "span files: ns outside", "-, ns", NOT_MORE, _loop_steps, whole=True,
    ),
    Rule(
        "losses of epochs", "The mean of an epoch's losses is what the rank marked at its end.",
        "done-markers and span files: epochs that agree", "span files: epochs", EQUAL, _epoch_losses, whole=True,
    ),
    Rule(
        "evaluations", "The chief reports the evaluations between epochs that it marked.",
        "done-markers", "span files: those that are the same", EQUAL, _evaluations, whole=True,
    ),
    Rule(
        "right predictions", "The accuracy of the stored model is the share of its right predictions.",
        "done-markers: right samples", "predict spans: right samples", EQUAL, _right, whole=True,
    ),
    Rule(
        "lengths of done-markers", "A done-marker is as long as its rank wrote it.",
        f"{files.MARKERS}: bytes", "write spans of the ranks: bytes", EQUAL, _marker_bytes, whole=True,
    ),
    Rule(
        "checkpoints", "The chief stored a checkpoint as often as its job says.",
        "spans of the chief", "job.json and done-marker", EQUAL, _checkpoints, whole=True,
    ),
    Rule(
        "files of checkpoints and models", "Each checkpoint, and the model that is stored, has files.",
        "spans of the chief without a write", "-", EQUAL, _stored, whole=True,
    ),
)  # fmt: skip
