"""What is missing of one source, and where in the trace that leaves a hole."""

from __future__ import annotations

from dataclasses import dataclass

from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.sources.kinds import Kind

ALL_LANES = ("*",)


@dataclass(frozen=True, slots=True)
class Absence:
    """A source that is absent, or that does not begin or end as it should.

    Attributes:
        what: the file or the process, in words.
        how: how that is known.
        lanes: whose spans may hide what it would have told, as in `fnmatch`.
        since_ns: only those that end later; 0 for all.
        layers: those of the kind that take part in this way of running.
    """

    kind: Kind
    what: str
    how: str
    lanes: tuple[str, ...] = ()
    since_ns: int = 0
    layers: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """One line for people: what is missing, how that is known, and what is unknown therefore."""
        layers = f"; layers: {', '.join(self.layers)}" if self.layers else ""
        return f"{self.what} {self.how}; unknown therefore: {self.kind.unknown}{layers}"


def ended_well(evidence: Evidence) -> bool:
    """Whether all its processes ended by themselves, so that each source is whole: one that was killed leaves less."""
    return bool(evidence.window["exit_code"] == 0 and not evidence.window["ended_by"])


def killed(evidence: Evidence) -> set[str]:
    """The containers of executors that the driver lost, and of lost attempts: what they recorded ends somewhere."""
    gone = evidence.driver_log.gone
    lost = (found for executor, found in evidence.executor_containers.items() if executor in gone)
    return {*lost, *evidence.lost_containers}


def recorded(evidence: Evidence) -> bool:
    """Whether the recorder was on; a bundle that does not say is of a time when nobody switched it off."""
    return str(evidence.span_cost.get("recording", "on")) != "off"
