"""Warnings of a run: missing evidence, failed daemons, lost work, clock steps and a misleading YARN status."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from dlobd.attribution.trace import Trace
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import MissingEvidence
from dlobd.evidence.topology import Placement
from dlobd.layers import TENSORFLOW, title
from dlobd.measures import recording_cost
from dlobd.timeline import application, hdfs_use
from dlobd.timeline.ranks import ranks
from dlobd.timeline.tasks import jobs_elsewhere
from dlobd.tracing import clock

_STARTUP = "STARTUP_MSG:"
"""Prefix of the first line of a Hadoop daemon's log."""

_LOST = re.compile(r"BLOCK\* removeDeadDatanode: lost heartbeat from (\S+),")
"""The NameNode's log line that declares a DataNode dead. Until then, write pipelines wait for the DataNode."""


def warnings(evidence: Evidence, absences: Sequence[MissingEvidence], trace: Trace) -> list[str]:
    """Return all warnings, one line each."""
    return [
        *(f"missing: {absence.sentence}" for absence in absences),
        *trouble(evidence),
        *_spans(evidence, trace),
        *hdfs_use.outages(evidence),
        *(line for one in evidence.applications for line in application.lost_attempts(one)),
        *jobs_elsewhere(evidence),
        *_frameworks(evidence),
        *_clocks(evidence, trace),
    ]


def trouble(evidence: Evidence) -> list[str]:
    """Return the warnings about YARN's status and about daemons that died, were restarted or stopped responding."""
    found = list(_daemons(evidence))
    if evidence.window["exit_code"] != 0 and evidence.rm_app.get("finalStatus") == "SUCCEEDED":
        reason = "in client mode it is the status of the ApplicationMaster only"
        found.insert(0, f"YARN's final status is SUCCEEDED although the job failed: {reason}")
    return found


def _daemons(evidence: Evidence) -> Iterator[str]:
    for daemon in evidence.daemons:
        lines = evidence.daemon_log(daemon["name"])
        for before, after in pairwise(lines):
            if after.message.startswith(_STARTUP):
                away_s = (after.at_ns - before.at_ns) / 1e9
                yield f"{daemon['name']} was restarted during the run: its log was silent for {away_s:.1f} s"
        if not daemon["alive"]:
            yield f"{daemon['name']} died during the run"
        if daemon["kind"] == "namenode":
            for line in lines:
                if (lost := _LOST.match(line.message)) is None:
                    continue
                addresses = [(node, f"{node['host']}:{node['ports'].get('data')}") for node in evidence.daemons]
                nodes = [node for node, address in addresses if address == lost[1]]
                if all(node["alive"] for node in nodes):
                    name = f"{nodes[0]['name']} ({lost[1]})" if nodes else f"the DataNode at {lost[1]}"
                    yield f"{name} stopped responding: writes waited for it until the NameNode declared it dead"


def _spans(evidence: Evidence, trace: Trace) -> Iterator[str]:
    if truncated := int(trace.spans.truncated.sum()):
        spans = "1 span has" if truncated == 1 else f"{truncated} spans have"
        yield f"{spans} no recorded end: their process was killed or still running"
    # settings of a script's own SparkConf override its spark-submit line
    topology = evidence.topology
    in_driver = topology.placement is Placement.LOCAL
    if topology.own_master and not topology.has_yarn:
        count = "; Spark's jobs contain the time of your functions" if in_driver else ""
        yield f"the script set its master to {topology.own_master}: YARN took no part{count}"
    if len(evidence.applications) > 1:
        ids = [str(one.window["application_id"]) for one in evidence.applications]
        yield f"the script created {len(ids)} applications: {', '.join(ids)}"
    if damaged := sum(process.bad_lines for process in evidence.processes):
        yield f"{damaged} lines of span files are truncated: their process was killed while writing"
    if lost := recording_cost.lost_lines(evidence):
        yield f"{lost} lines of span files are lost: they could not be written to disk"


def _frameworks(evidence: Evidence) -> Iterator[str]:
    names = sorted({rank.framework for rank in ranks(evidence)} - {""}) if evidence.topology.user_script else []
    for name in names:
        yield f"the layer {title(TENSORFLOW)} has the time of {name}: its import, its rendezvous and its steps"


def _clocks(evidence: Evidence, trace: Trace) -> Iterator[str]:
    if step_ns := clock.stepped_ns(evidence.anchors):
        yield (
            f"the wall clock was stepped by {step_ns / 1e9:+.3f} s during the job: dates in logs are shifted; "
            "figures use the monotonic clock"
        )
    for moved in evidence.alignment.clocks.values():
        yield (
            f"{moved.host} has a different clock: aligned by {moved.pairs} message pairs, with an error of at most "
            f"{moved.error_ns / 1e3:.0f} us"
        )
        for earliest_ns, latest_ns in moved.offset.steps:
            first_s, last_s = (
                (at_ns + moved.offset.at(at_ns).lo_ns - trace.start_ns) / 1e9 for at_ns in (earliest_ns, latest_ns)
            )
            yield (
                f"the monotonic clock of {moved.host} was stepped between {first_s:.3f} and {last_s:.3f} s: times "
                "between them are uncertain by the step"
            )
    if evidence.alignment.moved:
        moved_logs = len(evidence.alignment.moved)
        yield f"{moved_logs} sources with other clocks were aligned by wall clocks, with unknown error"
