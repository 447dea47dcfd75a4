"""dlobd's own records of one process against each other: spans nest, lines are in order, none is missing, each name has
its layer and its wait, and marks that are made side by side stand side by side."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from dlobd.attribution import degrees
from dlobd.attribution.audits.base import (
    EQUAL,
    NOT_MORE,
    Figures,
    Rule,
    other_clocks,
    several_clocks,
    slowness,
    training_job,
    worst,
)
from dlobd.attribution.audits.clocks import APART_NS
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.recorder import RecordedProcess, RecordedSpan, trainers
from dlobd.tracing import names
from dlobd.tracing.recorder import FLUSH_S

FIRST_WRITE_NS = round(0.9 * FLUSH_S * 1e9)
"""A recorder's thread writes for the first time after `FLUSH_S`; a sleep may end a little early by the clock."""

_SECONDS = re.compile(r"\(\D*([\d.]+) s\b")
"""How long a cause lasts at least, by its own name."""

INTERFACES_NS = 300_000_000
"""To read the counters of a machine's interfaces takes Python so long at most. Measured on a busy machine: 86 ms."""

TOLD: dict[str, str] = {names.FEED_TASK: "task_attempt"}
"""A span of this name has this attribute."""

INSIDE = "tf-ring"
"""The exchange inside of the step, whose steps are collectives; also of bundles whose job does not name one."""

WAITS: dict[str, tuple[str, ...]] = {
    names.GET: (names.WAIT_FEEDER,),
    names.AWAIT_BLOCK: (names.WAIT_READER,),
    names.NEXT_BATCH: (names.WAIT_READER,),
    names.FEED_JOB: (names.WAIT_TRAINERS,),
    names.AWAIT_TRAINERS: (names.WAIT_TRAINERS,),
    names.WAIT_FOR_RANKS: (names.WAIT_TRAINERS,),
    names.AWAIT_RESERVATIONS: (names.WAIT_LAST_RESERVATION,),
    names.WAIT_FOR_TRAINER: (names.WAIT_TRAINER,),
    names.AWAIT_PLACE: (names.WAIT_FEEDER,),
}
"""A span of this name waits for this."""

CAUSES: dict[str, str] = {
    names.AWAIT_TRAINERS: "done-marker poll",
    names.AWAIT_RESERVATIONS: "",
    names.SLEEP: "",
}
"""A span of this name has a cause that begins so, with a period."""

ALL_OF_IT = (names.DRIVER, names.PARENT, names.USER_CODE)
"""Spans of a driver, of a parent, or of the user's own script, that hold all others."""

RENDEZVOUS: dict[str, str] = {
    names.JOIN_RANKS: names.JOIN_RANKS,
    names.WAIT_FOR_PEERS: names.PEERS_RENDEZVOUS,
    names.AGREE: names.AGREE,
}
"""A span of this name is a member of a collective of this kind."""

SIDE_BY_SIDE: dict[bool, tuple[tuple[str, str, str], ...]] = {
    True: (
        (names.SPARK_CONTEXT, "begin", names.SPARK_CONTEXT_START),
        (names.SPARK_CONTEXT, "end", names.SPARK_CONTEXT_READY),
        (names.SPARK_CONTEXT_STOP, "end", names.SPARK_CONTEXT_STOPPED),
    ),
    False: (
        (names.IMPORT_TENSORFLOW, "end", names.TENSORFLOW_IMPORTED),
        (names.JOIN_RANKS, "end", names.RANKS_JOINED),
        (names.FIRST_STEP, "begin", names.FIRST_BATCH),
        (names.FIRST_STEP, "end", names.FIRST_STEP_DONE),
        (names.SAVE_MODEL, "end", names.SAVED),
        (names.EVALUATE, "end", names.EVALUATED),
    ),
}
"""Whether a process is the driver, to the begin or end of a span and the instant that the same thread makes beside it.
Of several spans of a name the one that is nearest."""


def _whole(evidence: Evidence) -> Iterator[RecordedProcess]:
    """The processes of a training job that end by themselves, and so have written all."""
    if training_job(evidence):
        yield from (p for p in evidence.processes if p is evidence.driver_process or p.rank is not None)


def _names(evidence: Evidence) -> Figures:
    spans = [span for process in evidence.processes for span in process.spans]
    wrong = sum(degrees.own(span.layer, span.name) is None or _misplaced(evidence, span) for span in spans)
    return Figures(wrong, 0) if spans else Figures()


def _misplaced(evidence: Evidence, span: RecordedSpan) -> bool:
    """Files of a job are in HDFS, or are local: `fs_uri` says which, and so does the layer of reading and writing."""
    if "fs_uri" not in evidence.job or not {"path", "purpose"} <= span.attrs.keys():
        return False
    if span.attrs["purpose"] == names.MODEL_FILE:
        return False
    return (span.layer == "hdfs") != str(evidence.job["fs_uri"]).startswith("hdfs://")


def _waits(evidence: Evidence) -> Figures:
    steps = evidence.job.get("exchange", INSIDE) == INSIDE
    wrong = seen = 0
    for process in evidence.processes if training_job(evidence) else ():
        for span in process.spans:
            seen += 1
            wrong += not _waits_right(span, steps)
    return Figures(wrong, 0) if seen else Figures()


def _waits_right(span: RecordedSpan, steps: bool) -> bool:
    wait: dict[str, Any] = span.wait
    if span.name in WAITS and tuple(wait.get("waits_for", ())) != WAITS[span.name]:
        return False
    if span.name in CAUSES:
        cause = str(wait.get("cause", ""))
        if not cause or not cause.startswith(CAUSES[span.name]) or not wait.get("cause_period_ns"):
            return False
    if (told := _SECONDS.search(str(wait.get("cause", "")))) and wait["cause_period_ns"] < float(told[1]) * 1e9:
        return False
    if span.name in RENDEZVOUS and span.rendezvous != RENDEZVOUS[span.name]:
        return False
    return not (steps and span.name in (names.STEP, names.FIRST_STEP)) or span.rendezvous == names.STEP_RENDEZVOUS


def _members(evidence: Evidence) -> dict[tuple[str, int | None], list[RecordedSpan]]:
    """The collectives of the ranks: kind and number to the spans of their members."""
    groups: dict[tuple[str, int | None], list[RecordedSpan]] = defaultdict(list)
    for process in trainers(evidence.processes):
        for span in process.spans:
            if span.rendezvous:
                groups[span.rendezvous, span.call].append(span)
    return groups


def _collectives(evidence: Evidence) -> Figures:
    groups, ranks = _members(evidence), training_job(evidence).get("workers")
    if not groups or not ranks:
        return Figures()
    return Figures(sum(len(members) != ranks for members in groups.values()), 0)


def _together(evidence: Evidence) -> Figures:
    """No member of a collective leaves it before the last one has come."""
    groups = [spans for spans in _members(evidence).values() if not any(span.truncated for span in spans)]
    early = [max(s.start_ns for s in spans) - min(s.end_ns for s in spans) for spans in groups if len(spans) > 1]
    error_ns = max((clock.error_ns for clock in evidence.alignment.clocks.values()), default=0)
    return worst(early, 2 * error_ns, other_clocks(evidence))


def _counted(evidence: Evidence) -> Figures:
    """A recorder counts the lines that it writes, and says so now and then, in a line of its own."""
    said = read = 0
    for process in evidence.processes:
        lines = process.path.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if line.startswith('{"k":"cost"'):
                said, read = said + int(json.loads(line)["lines"]), read + number
    return Figures(said, read) if said else Figures()


def _nested(evidence: Evidence) -> Figures:
    outside = []
    for process in evidence.processes:
        by_id = {span.id: span for span in process.spans}
        for span in process.spans:
            parent = by_id.get(span.parent)
            if parent and parent.thread == span.thread and not (span.truncated or parent.truncated):
                outside += [parent.start_ns - span.start_ns, span.end_ns - parent.end_ns]
        for spans in _siblings(process):
            outside += [a.end_ns - b.start_ns for a, b in pairwise(spans) if not a.truncated]
    return worst(outside, 0)


def _siblings(process: RecordedProcess) -> Iterator[list[RecordedSpan]]:
    """Spans of one thread with the same parent, in the order of their ids: one had ended when the next began."""
    found: dict[tuple[str, int], list[RecordedSpan]] = defaultdict(list)
    for span in process.spans:
        if not span.attrs.get("jvm_call"):  # noted when they were over
            found[span.thread, span.parent].append(span)
    for spans in found.values():
        yield sorted(spans, key=lambda span: span.id)


def _closed(evidence: Evidence) -> Figures:
    spans = [span for process in _whole(evidence) for span in process.spans]
    return Figures(sum(span.truncated for span in spans), 0) if spans else Figures()


def _beside(evidence: Evidence) -> Figures:
    apart = []
    for process in _whole(evidence):
        for name, end, instant in SIDE_BY_SIDE[process.process.role == "driver"]:
            mark = process.instant(instant)
            bounds = [s.start_ns if end == "begin" else s.end_ns for s in process.named(name) if not s.truncated]
            if mark and bounds:
                apart.append(min(abs(at_ns - mark.at_ns) for at_ns in bounds))
        read_ns = _interfaces_read_ns(process)
        if read_ns is not None and not several_clocks(evidence):  # it is a figure of the host's own clock
            apart += [abs(span.start_ns - read_ns) for span in process.named(names.JOIN_RANKS)[:1]]
            ends = [span.end_ns for span in process.named(names.IMPORT_TENSORFLOW)]
            apart += [abs(read_ns - end_ns) - INTERFACES_NS for end_ns in ends[-1:]]
    return worst(apart, APART_NS * slowness(evidence))


def _interfaces_read_ns(process: RecordedProcess) -> int | None:
    """When a rank read the counters of its interfaces for the first time: as soon as it had imported TensorFlow and
    began to join the others."""
    said = process.instant(names.TRANSPORT)
    before = said.attrs.get("before") if said else None
    return int(before["at_ns"]) if before else None


def _paired(evidence: Evidence) -> Figures:
    """The begin or end of a phase, and the instant beside it, are both there."""
    alone = seen = 0
    for process in _whole(evidence):
        for name, _, instant in SIDE_BY_SIDE[process.process.role == "driver"]:
            there = bool(process.named(name)), process.instant(instant) is not None
            seen += any(there)
            alone += there[0] != there[1]
    return Figures(alone, 0) if seen else Figures()


def _file_order(evidence: Evidence) -> Figures:
    back = []
    for process in evidence.processes if training_job(evidence) else ():
        latest: dict[str, int] = defaultdict(int)
        open_threads: dict[int, str] = {}
        for line in map(json.loads, process.path.read_text(errors="replace").splitlines()[: process.lines]):
            thread = line.get("th", "") if line["k"] in "sb" else open_threads.get(line.get("i"), "")
            if line["k"] == "b":
                open_threads[line["i"]] = thread
            if line["k"] in ("s", "b", "e"):  # an instant may be of an earlier time than it is written
                back.append(latest[thread] - line["t"] - line.get("d", 0))
                latest[thread] = max(latest[thread], line["t"])
    return worst(back, 0)


def _file_names(evidence: Evidence) -> Figures:
    if (several := several_clocks(evidence)) or not evidence.processes:
        return Figures(why=several)
    same = sum(p.path.stem == f"spans-{p.process.pid}-{p.opened_ns}" for p in evidence.processes)
    return Figures(same, len(evidence.processes))


def _waiting(evidence: Evidence) -> Figures:
    """From the first batch of any rank to the last rank's done-marker the driver is in a span other than that of all
    that it does: it has nothing to do but to wait."""
    driver = evidence.driver_process
    ranks = trainers(evidence.processes)
    first = [mark.at_ns for rank in ranks if (mark := rank.instant(names.FIRST_BATCH))]
    last = [mark.at_ns for rank in ranks if (mark := rank.instant(names.LAST_STEP_DONE))]
    last += [span.end_ns for rank in ranks for span in rank.named(names.WRITE_DONE_MARKER)]
    if driver is None or not training_job(evidence) or not first or not last:
        return Figures()
    gaps, until_ns = [], min(first)
    for span in sorted(driver.spans, key=lambda span: span.start_ns):
        if span.name not in ALL_OF_IT:
            gaps.append(min(span.start_ns, max(last)) - until_ns)
            until_ns = max(until_ns, span.end_ns)
    return worst([*gaps, max(last) - until_ns], APART_NS, other_clocks(evidence))


def _told(evidence: Evidence) -> Figures:
    """A span tells what those of its name tell: a get its bytes, the user's code in a task its task."""
    without = seen = 0
    for process in evidence.processes:
        for span in process.spans:
            if (key := TOLD.get(span.name)) and not span.truncated and "error" not in span.attrs:
                seen += 1
                without += key not in span.attrs
            elif span.name == names.UNPICKLE_FUNCTION:
                seen += 1
                without += bool(span.attrs)
    return Figures(without, 0) if seen else Figures()


def _clock_readings(evidence: Evidence) -> Figures:
    """A file begins when its process first writes: when an outermost span has ended, or a while after it was opened.
    A driver reads both clocks for the last time when it has nothing more to record."""
    outside = []
    for process in evidence.processes:
        tops = [s.end_ns for s in process.spans if not (s.parent or s.thread or s.truncated)]
        if tops and process.anchors:
            first_ns = process.anchors[0].monotonic_ns
            outside.append(min(min(tops) - first_ns, process.opened_ns + FIRST_WRITE_NS - first_ns))
            outside.append(first_ns - min(tops) - APART_NS)
    driver = evidence.driver_process
    if driver and driver.anchors and not driver.bad_lines and _ended_well(evidence):
        records = [s.end_ns for s in driver.spans] + [instant.at_ns for instant in driver.instants]
        outside.append(driver.anchors[-1].monotonic_ns - max(records, default=driver.opened_ns) - APART_NS)
    return worst(outside, 0, other_clocks(evidence))


def _ended_well(evidence: Evidence) -> bool:
    return evidence.window["exit_code"] == 0 and not evidence.window["ended_by"]


RULES = (
    Rule(
        "names and layers", "Each span's name has the layer that the table of names gives it, and files have the layer "
        "of their file system.", "spans that have not", "-", EQUAL, _names,
    ),
    Rule(
        "names and waits", "Each span whose name is that of a wait says for whom or for what it waits.",
        "spans that do not", "-", EQUAL, _waits,
    ),
    Rule(
        "members of collectives", "Every rank has a span in each collective.",
        "collectives without one", "-", EQUAL, _collectives, whole=True,
    ),
    Rule(
        "collectives", "No rank leaves a collective before the last one has come.",
        "span files: ns by which one does", "error of the clocks, ns", NOT_MORE, _together,
    ),
    Rule(
        "lines of the recorder", "A span file has as many lines as its recorder says that it wrote.",
        "recorder's own counts", "lines before them", EQUAL, _counted,
    ),
    Rule(
        "nesting", "Spans of one thread lie inside their parents and follow each other.",
        "span files: ns outside", "one thread's clock, ns", NOT_MORE, _nested,
    ),
    Rule(
        "ends of spans", "In a job that ended well, driver and trainers ended every span that they began.",
        "spans without an end", "-", EQUAL, _closed, whole=True,
    ),
    Rule(
        "marks side by side", "Where a thread marks an instant beside a span's begin or end, both are of one time.",
        "span files: ns apart", "what a busy machine may hold a thread up, ns", NOT_MORE, _beside,
    ),
    Rule(
        "marks in pairs", "Where a phase has a span and an instant beside it, both are there.",
        "phases with one of the two", "-", EQUAL, _paired, whole=True,
    ),
    Rule(
        "waits of the driver", "While ranks train, the driver is in a span: it waits for them.",
        "span files: ns without one", "what a busy machine may hold a thread up, ns", NOT_MORE, _waiting, whole=True,
    ),
    Rule(
        "order of records", "A thread's lines in its span file stand in the order in which they were made.",
        "span files: ns by which one is earlier than one before it", "one thread's clock, ns", NOT_MORE, _file_order,
    ),
    Rule(
        "names of span files", "A span file is called by its process and by when that opened it.",
        "files whose name is so", "span files", EQUAL, _file_names,
    ),
    Rule(
        "names and what they tell", "Spans tell what those of their name do: bytes, a task; and nothing else.",
        "spans that do not", "-", EQUAL, _told,
    ),
    Rule(
        "clock readings and records", "A process reads both clocks when it writes for the first time: after an "
        "outermost span, or a while after it opened its file; a driver also right after its last record.",
        "span files: ns outside", "-, ns", NOT_MORE, _clock_readings,
    ),
)  # fmt: skip
