"""dlobd's recorder: were all records read, and do they lie inside the run by the client's clock."""

from __future__ import annotations

import hashlib

from dlobd.attribution.audits.base import EQUAL, NOT_MORE, Figures, Rule, other_clocks, worst
from dlobd.attribution.importers.evidence import Evidence
from dlobd.bundle import files, reading


def _spans(evidence: Evidence) -> Figures:
    # ids are handed out one by one, so that a lost span leaves a gap; a killed process loses its last ones, and no gap
    processes = [process for process in evidence.processes if process.spans]
    begun = sum(max(s.id for s in p.spans) - min(s.id for s in p.spans) + 1 for p in processes)
    read = sum(len(process.spans) for process in processes)
    return Figures(begun if processes else None, read if processes else None)


def _process_lives(evidence: Evidence) -> Figures:
    if evidence.by_hand:
        return Figures(why="the window is the ResourceManager's: the driver began before it")
    window = evidence.window
    outside = [max(window["exec_ns"] - process.opened_ns, 0) for process in evidence.processes]
    driver = evidence.driver_process
    if driver and window["exit_code"] == 0 and not window["ended_by"] and not evidence.cluster_mode:
        # processes in containers may outlive spark-submit by YARN's clean-up
        outside.append(max(driver.last_ns - window["exit_ns"], 0))
    return worst(outside, 0, other_clocks(evidence))


def _script(evidence: Evidence) -> Figures:
    path = evidence.path / files.SCRIPT
    if not evidence.own:
        return Figures(why="not your own script")
    data = reading.read_bytes(path)
    if not isinstance(data, bytes):
        return Figures(right=1)
    same = hashlib.sha256(data).hexdigest() == evidence.job["script_sha256"]
    doubt = "a secret in it was replaced" if b"[redacted]" in data else ""
    return Figures(int(same), 1, doubt=doubt)


RULES = (
    Rule(
        "spans", "Every span that a process opened was read.",
        "ids handed out by the recorder", "spans read", EQUAL, _spans,
    ),
    Rule(
        "records inside the window", "Nothing was recorded before the window, nor after it by a client-mode driver.",
        "span files: ns outside", "client clock, ns", NOT_MORE, _process_lives,
    ),
    Rule(
        "script", "The script in the bundle has the sha256 that the configuration records.",
        f"{files.SCRIPT}: scripts with that sha256", "job.json: scripts", EQUAL, _script,
    ),
)  # fmt: skip
