"""Calls of HDFS, each told by both sides: by the JVM that made it, where it logs its calls, and by the NameNode."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from dlobd.attribution.audits.base import EQUAL, Figures, Rule, several_clocks, training_job
from dlobd.attribution.audits.hdfs import troubled
from dlobd.attribution.audits.messages import LOG_NS
from dlobd.attribution.importers import rpc
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.hdfs import Audit, close_answers, removed

STAGING = ("create", "mkdirs", "setPermission", "setReplication")
"""What spark-submit does to its staging directory, as the NameNode logs it. To remove it is left to who ends last,
whose log may have ended before."""

EVENT_LOG = ("create", "rename")
"""What the driver does to the file of its event log."""

INPUT = ("open",)
"""What an executor does to a file that is fed."""

METHODS: dict[str, tuple[str, ...]] = {"rename": ("rename", "rename2"), "open": ("getBlockLocations",)}
"""What the client's log calls these; others have one name at both."""

ENDS = ("complete", "addBlock")
"""Calls that may end a block, so that the NameNode says whether it has enough copies of it."""


def _made(evidence: Evidence) -> dict[str, list[rpc.Call]]:
    """The calls that the application's JVMs logged, by the path that they are about."""
    made: dict[str, list[rpc.Call]] = defaultdict(list)
    logs = map(evidence.container_log, sorted({*evidence.containers, *evidence.executor_containers.values()}))
    for call in chain(evidence.submit_calls, *map(rpc.calls, logs)):
        made[call.path].append(call)
    return made


def _expected(evidence: Evidence) -> Iterator[Audit]:
    """What at the NameNode was done by a JVM of the application that has a log."""
    application, window = evidence.window["application_id"], evidence.window
    staging = f"/.sparkStaging/{application}"
    fed = evidence.file_bytes if training_job(evidence).get("input") == "feed" and evidence.executors else {}
    for audit in evidence.audits if application else ():
        if audit.protocol != "rpc" or not window["exec_ns"] <= audit.at_ns <= window["exit_ns"]:
            continue
        if staging in audit.path:
            if evidence.submit_lines and audit.command in STAGING:
                yield audit
        elif audit.path.rpartition("/")[2].startswith(application):
            if evidence.driver_lines and audit.command in EVENT_LOG:
                yield audit
        elif audit.path in fed and audit.command in INPUT:
            yield audit


def _holds(call: rpc.Call, at_ns: int) -> bool:
    return call.start_ns - LOG_NS <= at_ns <= call.end_ns + LOG_NS


def _is_for(call: rpc.Call, audit: Audit) -> bool:
    return call.method in METHODS.get(audit.command, (audit.command,)) and _holds(call, audit.at_ns)


def _told_by_both(evidence: Evidence) -> Figures:
    made = _made(evidence)
    if not made:
        return Figures(why="no JVM of the application logs its calls")
    expected = list(_expected(evidence))
    found = sum(any(_is_for(call, audit) for call in made[audit.path]) for audit in expected)
    return Figures(found, len(expected), doubt=_doubt(evidence)) if expected else Figures(found)


def _doubt(evidence: Evidence) -> str:
    if evidence.own:
        return "your script may set the level of its log"
    lost = any("Lost executor" in line.message for line in evidence.driver_lines)
    return ("an executor was lost" if lost else "") or troubled(evidence) or several_clocks(evidence)


def _closes(evidence: Evidence) -> Figures:
    """The NameNode logs each try to close a file: that it is closed, or that a block has too few copies yet."""
    made, window = _made(evidence), evidence.window
    created = {
        path: calls
        for path, calls in made.items()
        # what somebody removed meanwhile cannot be closed
        if any(call.method == "create" for call in calls) and not removed(evidence.audits, path, calls[-1].start_ns)
    }
    answers = [
        answer
        for answer in close_answers(evidence.daemon_log("namenode"))
        if answer.path in created and window["exec_ns"] <= answer.at_ns <= window["exit_ns"]
    ]
    if not any(answer.closed for answer in answers):
        return Figures(why="no JVM of the application logs its calls, or the NameNode does not log what it closes")
    unanswered = sum(
        not any(answer.path == path and _holds(call, answer.at_ns) for answer in answers)
        for path, calls in created.items()
        for call in calls
        if call.method == "complete"
    )
    unasked = sum(
        not any(call.method in ENDS and _holds(call, answer.at_ns) for call in created[answer.path])
        for answer in answers
    )
    return Figures(unanswered + unasked, 0, doubt=_doubt(evidence))


RULES = (
    Rule(
        "calls of the NameNode", "What the NameNode logs that spark-submit, the driver and the executors did, these "
        "logged too, as calls that were open at that time.",
        "logs of JVMs: calls", "NameNode audit log: operations", EQUAL, _told_by_both, whole=True,
    ),
    Rule(
        "closes of files", "The NameNode answered each try of a JVM to close a file, and no others.",
        "logs of JVMs and NameNode log: those that only one has", "-", EQUAL, _closes, whole=True,
    ),
)  # fmt: skip
