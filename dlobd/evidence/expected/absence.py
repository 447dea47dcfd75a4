"""The type of missing evidence, with the lanes of the unknown spans."""

from dataclasses import dataclass

from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import EvidenceKind

ALL_LANES = ("*",)


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """An absent or incomplete source."""

    kind: EvidenceKind
    what: str  # the name of the file, or a description of the process
    how: str  # the defect, and its proof
    lanes: tuple[str, ...] = ()  # patterns (`fnmatch`) of lanes whose spans may contain time of other layers
    since_ns: int = 0  # spans that end later are affected; 0: all spans
    layers: tuple[str, ...] = ()  # layers of the kind that take part in the run
    process: str = ""  # ID of the process whose span file is missing or incomplete

    @property
    def sentence(self) -> str:
        """A line for users: the missing source, its defect, and the consequence."""
        layers = f"; affected layers: {', '.join(self.layers)}" if self.layers else ""
        return f"{self.what} {self.how}; unknown as a result: {self.kind.unknown}{layers}"


def process_id(directory: str, pid: int | str) -> str:
    """Return the ID of a process that recorded spans. A PID alone is unique only inside a container."""
    return f"{directory}/{pid}"


def lanes_of_executor(executor: str) -> tuple[str, ...]:
    """Return patterns of the lanes of all task slots of an executor."""
    return f"executor-{executor}", f"executor-{executor}/slot-*"


def ended_well(evidence: Evidence) -> bool:
    """Return True if no process of the run was killed, so that each source must be complete."""
    return bool(evidence.window["exit_code"] == 0 and not evidence.window["ended_by"])


def killed(evidence: Evidence) -> set[str]:
    """Return the containers of executors that were lost or removed before the end, and of lost attempts: their records
    may be truncated. So may those of an executor that was still starting when the application ended."""
    log = evidence.driver.log
    starting = {name for name, own in evidence.executors.items() if name not in log.registered and not own.registered}
    gone = {*log.gone, *log.removed, *starting}
    lost = (found for executor, found in evidence.executor_containers.items() if executor in gone)
    return {*lost, *evidence.lost_containers}
