"""Records: of the cluster, of Spark, of the ranks; and the inventory, which has every file that was collected."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.sources import kinds
from dlobd.attribution.sources.absence import Absence, ended_well
from dlobd.attribution.sources.spans import lanes_of
from dlobd.bundle import files, reading


def absences(evidence: Evidence) -> Iterator[Absence]:
    """Records that are not there, or are cut."""
    if not ended_well(evidence):
        return
    if not evidence.native:
        yield from _event_log(evidence)
    if evidence.on_yarn and not evidence.native and not evidence.rm_app.get("id"):
        yield Absence(kinds.RM_RECORD, files.RM_APPLICATION, "is absent, or has no application")
    if evidence.external and not evidence.on_file(files.HOSTS):
        yield Absence(kinds.HOSTS, files.HOSTS, "is absent")
    if evidence.own:
        if not evidence.on_file(files.SCRIPT):
            yield Absence(kinds.CODE, files.SCRIPT, "is absent")
        return
    if not evidence.on_file(files.MARKERS):
        yield Absence(kinds.MARKERS, files.MARKERS, "is absent")
    for name in (files.BLOCKS, files.CHECKSUMS) if _inventoried(evidence) and not evidence.native else ():
        if not evidence.on_file(name):
            yield Absence(kinds.INPUT_RECORDS, name, "is absent")


def _inventoried(evidence: Evidence) -> bool:
    """Whether collection left its own record, as all but the oldest bundles have it."""
    return evidence.on_file(files.COLLECTED)


def _event_log(evidence: Evidence) -> Iterator[Absence]:
    log = evidence.event_log
    if not log.lines:
        if _inventoried(evidence) and not any(line.startswith("event log: ") for line in evidence.collected["missing"]):
            yield Absence(kinds.EVENT_LOG, files.EVENT_LOG, "is absent, or empty")
    elif log.application is None:
        yield Absence(kinds.EVENT_LOG, files.EVENT_LOG, "does not have the application's start: its begin is missing")
    elif not log.has_end:
        yield Absence(kinds.EVENT_LOG, files.EVENT_LOG, "does not have the application's end: it ends early")


def damaged(evidence: Evidence, named: Collection[str]) -> Iterator[Absence]:
    """Yields each file that cannot be used, or not completely, as far as `named` does not name it.

    A process that was killed leaves half a line, so that its log is damaged only if the run ended well.
    """
    for name, reason in evidence.damaged.items():
        cut = name in (files.EVENT_LOG, files.RESOURCES) and evidence.on_file(name) and not ended_well(evidence)
        if not cut and not any(_names(sentence, name) for sentence in named):
            yield _of_file(evidence, name, reason)


def uncollected(evidence: Evidence, named: Collection[str]) -> Iterator[Absence]:
    """Files that the inventory has, and the bundle has not, or not whole.

    Args:
        named: sentences about what is known to be missing: what they name is not said twice.
    """
    inventory: dict[str, int] = evidence.collected.get("files", {})
    if not inventory and any(process.parent is not None for process in evidence.processes):
        yield Absence(kinds.INVENTORY, files.COLLECTED, "is absent, or has no inventory")
    for name, size in inventory.items():
        path = evidence.path / name
        if any(_names(sentence, name) for sentence in named):
            continue
        there = reading.size(path)
        if there is None:
            how = "was collected, and is absent"
        elif there != size:
            how = f"had {size} bytes when it was collected, and has {there}"
        else:
            continue
        yield _of_file(evidence, name, how)


def _names(sentence: str, name: str) -> bool:
    """Whether a sentence is about that file; one about a span file has the process and its directory."""
    directory, _, file = name.removeprefix("spans/").rpartition("/")
    about = f"process {file.split('-')[1]} in {directory}" if file.startswith("spans-") else name
    return about in sentence


def _of_file(evidence: Evidence, name: str, how: str) -> Absence:
    kind = kinds.kind_of(name) or kinds.CONTAINER_FILES
    parts = name.split("/")
    if kind is kinds.EXECUTOR_LOG and parts[2] in evidence.attempts.ams and evidence.on_yarn:
        kind = kinds.MASTER_LOG
    if kind is kinds.DRIVER_LOG and evidence.native:
        kind = kinds.NATIVE_LOG
    lanes = lanes_of(evidence, parts[1] if parts[0] == "spans" else parts[-2]) if kind.missing else ()
    return Absence(kind, name, how, lanes)
