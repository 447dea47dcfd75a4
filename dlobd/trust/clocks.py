"""Checks of clocks: timestamps of several clocks and of several processes against each other."""

from __future__ import annotations

from bisect import bisect_left

from dlobd.evidence import log4j
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected import kinds
from dlobd.trust.base import BUSY_NS, Compared, Facts, Rule, other_clocks, unknown


def _log_timestamps(facts: Facts) -> Compared | None:
    """The two timestamps of each log line differ by the offset between wall clock and monotonic clock.

    Detects a wall clock that was set during the run, and lines of another boot. Not seen to fail in a run so far; a
    test edits a log.
    """
    evidence = facts.evidence
    # as read on each host, and before and after a step of a wall clock
    known = sorted(set(evidence.clock_differences_ns))
    apart = [_distance(known, difference) for difference in _differences(evidence)]
    if not apart:
        return None
    if not known:
        return unknown("no process read both clocks")
    apart_ns = max(apart)
    message = (
        f"the wall clock and the monotonic clock of a log line disagree by {apart_ns / 1e9:.3f} s; "
        f"a busy machine explains {BUSY_NS / 1e9:.0f} s"
    )
    return Compared(apart_ns <= BUSY_NS, message, apart_ns, BUSY_NS, other_clocks(evidence))


def _differences(evidence: Evidence) -> list[int]:
    """Wall clock minus monotonic clock of each log line."""
    paths = [path for path in sorted((evidence.path / "logs").rglob("*")) if path.is_file()]
    return [wall_ns - at_ns for path in paths for at_ns, wall_ns in log4j.stamps(path)]


def _distance(known: list[int], value: int) -> int:
    """The distance to the nearest known value."""
    index = bisect_left(known, value)
    return min((abs(value - difference) for difference in known[max(index - 1, 0) : index + 1]), default=0)


def _window(facts: Facts) -> Compared | None:
    """Nothing was recorded before spark-submit began, nor by a driver in client mode after it ended.

    Not seen to fail in a run so far; a test shifts the end of the window.
    """
    evidence, window = facts.evidence, facts.evidence.window
    if evidence.topology.by_hand or not evidence.processes:  # a window by hand is the ResourceManager's
        return None
    outside = [window["exec_ns"] - process.opened_ns for process in evidence.processes]
    driver = evidence.driver_process
    # processes in containers may outlive spark-submit by YARN's clean-up
    if driver and window["exit_code"] == 0 and not window["ended_by"] and evidence.topology.driver_ends_in_window:
        outside.append(driver.last_ns - window["exit_ns"])
    outside_ns = max(*outside, 0)
    message = "all processes recorded inside the time that the client measured"
    if outside_ns:
        message = f"a process recorded {outside_ns / 1e9:.6f} s outside of the time that the client measured"
    return Compared(outside_ns == 0, message, outside_ns, 0, other_clocks(evidence))


RULES = (
    Rule("log-timestamps", ("logs: largest disagreement, ns", "limit on a busy machine, ns"), _log_timestamps),
    Rule("window", ("span files: ns outside", "client's clock, ns"), _window, (kinds.DRIVER_SPANS,)),
)
