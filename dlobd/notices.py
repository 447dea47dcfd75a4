"""What a person should know of a run beside its status: what went wrong around the job, or was not what it seems."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dlobd.importers.evidence import Evidence

_STARTS = "STARTUP_MSG:"
"""How the first line of a Hadoop daemon's log begins."""


def notices(evidence: Evidence) -> list[str]:
    """One line each, for the run's warnings."""
    return [*_status_of_yarn(evidence), *_daemons(evidence)]


def _status_of_yarn(evidence: Evidence) -> Iterator[str]:
    if evidence.window["exit_code"] != 0 and evidence.rm_app.get("finalStatus") == "SUCCEEDED":
        yield (
            "YARN calls the application SUCCEEDED, although the job failed: in client mode it knows the "
            "ApplicationMaster alone"
        )


def _daemons(evidence: Evidence) -> Iterator[str]:
    """Daemons that ended while the job ran, whether they came back or not."""
    for daemon in evidence.daemons:
        lines = evidence.daemon_log(daemon["name"])
        for before, after in pairwise(lines):
            if after.message.startswith(_STARTS):
                away_s = (after.at_ns - before.at_ns) / 1e9
                yield f"{daemon['name']} was started again during the run: it had said nothing for {away_s:.1f} s"
        if not daemon["alive"]:
            yield f"{daemon['name']} died during the run"
