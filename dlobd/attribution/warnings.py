"""What the user should know about a run besides its status: trouble around the job, and misleading signs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from dlobd.attribution.importers.evidence import Evidence

_STARTS = "STARTUP_MSG:"
"""How the first line of a Hadoop daemon's log begins."""

_LOST = re.compile(r"BLOCK\* removeDeadDatanode: lost heartbeat from (\S+),")
"""The NameNode gives a DataNode up. Writes had a silent one in their pipeline until then, unseen by who wrote."""


def notices(evidence: Evidence) -> list[str]:
    """One line each, for the run's warnings."""
    return [*_status_of_yarn(evidence), *_daemons(evidence)]


def _status_of_yarn(evidence: Evidence) -> Iterator[str]:
    if evidence.window["exit_code"] != 0 and evidence.rm_app.get("finalStatus") == "SUCCEEDED":
        yield (
            "YARN calls the application SUCCEEDED, although the job failed: in client mode YARN sees only the "
            "ApplicationMaster"
        )


def _daemons(evidence: Evidence) -> Iterator[str]:
    """Daemons that ended while the job ran, whether they came back or not."""
    for daemon in evidence.daemons:
        lines = evidence.daemon_log(daemon["name"])
        for before, after in pairwise(lines):
            if after.message.startswith(_STARTS):
                away_s = (after.at_ns - before.at_ns) / 1e9
                yield f"{daemon['name']} was restarted during the run: its log was silent for {away_s:.1f} s"
        if not daemon["alive"]:
            yield f"{daemon['name']} died during the run"
        if daemon["kind"] == "namenode":
            for line in lines:
                if lost := _LOST.match(line.message):
                    yield from _silent_datanode(evidence, lost[1])


def _silent_datanode(evidence: Evidence, address: str) -> Iterator[str]:
    """One that died is listed as such; `address` is that at which it transfers blocks."""
    known = [each for each in evidence.daemons if address == f"{each['host']}:{each['ports'].get('data')}"]
    if all(each["alive"] for each in known):
        name = f"{known[0]['name']} ({address})" if known else f"the DataNode at {address}"
        yield f"{name} stopped responding: writes waited for it until the NameNode declared it dead"
