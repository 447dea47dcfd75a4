"""Finds all missing evidence of a run, and marks the spans of its trace that are unknown without it.

Missing records of the cluster, of Spark and of the ranks, and missing files of the inventory are found here.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from dlobd.attribution.trace import Spans
from dlobd.bundle import files, reading
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected import kinds, logs, spans
from dlobd.evidence.expected.kinds import MissingEvidence, ended_well, process_id
from dlobd.layers import LAYERS, UNATTRIBUTED
from dlobd.schema import NotMeasured


def missing(evidence: Evidence) -> tuple[MissingEvidence, ...]:
    """Return the missing evidence, decisive evidence first. Raises BundleError if nothing was submitted."""
    found = [*spans.absences(evidence), *logs.absences(evidence), *_records(evidence)]
    found = [replace(missing, how=evidence.damaged.get(missing.what, missing.how)) for missing in found]
    found += [*_damaged(evidence, found)]
    found += [*_uncollected(evidence, found)]
    there = evidence.topology.layers
    found = [replace(each, layers=tuple(layer for layer in each.kind.layers if layer in there)) for each in found]
    return tuple(sorted(found, key=lambda each: not each.kind.decides))


def unknown(trace_spans: Spans, absences: Sequence[MissingEvidence]) -> Spans:
    """Return the spans; those whose own time may belong to another layer are unknown."""
    hidden = trace_spans.unknown.copy()
    for absence in absences:
        lanes = [any(fnmatchcase(lane, pattern) for pattern in absence.lanes) for lane in trace_spans.lanes]
        needs = np.array([absence.kind.missing in kind.hidden_by for kind, _ in trace_spans.kinds], np.bool_)
        of_kinds = needs[trace_spans.kind]
        hidden |= np.array(lanes)[trace_spans.lane] & of_kinds & (trace_spans.end_ns > absence.since_ns)
    return replace(trace_spans, unknown=hidden)


def not_measured(absences: Sequence[MissingEvidence]) -> Iterator[NotMeasured]:
    """Yield an entry for each layer that lacks evidence on which its time depends."""
    for layer in LAYERS:
        if found := [absence for absence in absences if absence.kind.decides and layer in absence.layers]:
            more = f", and {len(found) - 1} more" if found[1:] else ""
            yield NotMeasured(layer, UNATTRIBUTED, f"{found[0].what} {found[0].how}{more}")


def _records(evidence: Evidence) -> Iterator[MissingEvidence]:
    """Yield records that are absent or truncated."""
    if not ended_well(evidence):
        return
    topology = evidence.topology
    for one in evidence.applications if topology.has_spark else ():
        yield from _event_log(one, one.file_of(files.EVENT_LOG))
        if one.topology.has_yarn and not one.rm_app.get("id"):
            name = one.file_of(files.RM_APPLICATION)
            yield MissingEvidence(kinds.RM_RECORD, name, "is absent, or has no application")
    needed = [(kinds.HOSTS, files.HOSTS)] if topology.external else []
    needed.append((kinds.CODE, files.SCRIPT) if topology.user_script else (kinds.MARKERS, files.MARKERS))
    if evidence.on_file(files.COLLECTED) and topology.has_spark and not topology.user_script:
        needed += [(kinds.INPUT_RECORDS, name) for name in (files.BLOCKS, files.CHECKSUMS)]
    yield from (MissingEvidence(kind, name, "is absent") for kind, name in needed if not evidence.on_file(name))


def _event_log(evidence: Evidence, name: str) -> Iterator[MissingEvidence]:
    log = evidence.event_log
    if not log.lines:
        if evidence.on_file(files.COLLECTED) and name not in evidence.collected.get("absent", ()):
            yield MissingEvidence(kinds.EVENT_LOG, name, "is absent, or empty")
    elif not log.has_start:
        yield MissingEvidence(kinds.EVENT_LOG, name, "lacks the application's start: it begins late")
    elif not log.has_end:
        yield MissingEvidence(kinds.EVENT_LOG, name, "lacks the application's end: it ends early")


def _damaged(evidence: Evidence, known: Collection[MissingEvidence]) -> Iterator[MissingEvidence]:
    """Yield each damaged file that is not in `known`. After a failure, a truncated last line is no damage."""
    for name, reason in evidence.damaged.items():
        cut = name in (files.EVENT_LOG, files.RESOURCES) and evidence.on_file(name) and not ended_well(evidence)
        if not cut and not any(_is_about(missing, name) for missing in known):
            yield _of_file(evidence, name, reason)


def _uncollected(evidence: Evidence, known: Collection[MissingEvidence]) -> Iterator[MissingEvidence]:
    """Yield each file of the inventory that is absent or differs in size, and is not in `known`."""
    inventory: dict[str, int] = evidence.collected.get("files", {})
    if not inventory and any(process.parent is not None for process in evidence.processes):
        yield MissingEvidence(kinds.INVENTORY, files.COLLECTED, "is absent, or has no inventory")
    for name, size in inventory.items():
        path = evidence.path / name
        if any(_is_about(missing, name) for missing in known):
            continue
        there = reading.size(path)
        if there is None:
            how = "was collected, but is absent"
        elif there != size:
            how = f"had {size} bytes at its collection, but has {there}"
        else:
            continue
        yield _of_file(evidence, name, how)


def _is_about(missing: MissingEvidence, name: str) -> bool:
    """Return True if the missing evidence is that file; a span file is identified by its process."""
    directory, _, file = name.removeprefix("spans/").rpartition("/")
    if file.startswith("spans-"):
        return missing.process == process_id(directory, file.split("-")[1])
    return missing.what == name


def _of_file(evidence: Evidence, name: str, how: str) -> MissingEvidence:
    kind = kinds.kind_of(name) or kinds.CONTAINER_FILES
    parts = name.split("/")
    masters = [name for one in evidence.applications for name in one.attempts.ams]
    if kind is kinds.EXECUTOR_LOG and parts[2] in masters and evidence.topology.has_yarn:
        kind = kinds.MASTER_LOG
    if kind is kinds.DRIVER_LOG and not evidence.topology.has_spark:
        kind = kinds.NATIVE_LOG
    lanes = spans.lanes_of(evidence, parts[1] if parts[0] == "spans" else parts[-2]) if kind.missing else ()
    return MissingEvidence(kind, name, how, lanes)
