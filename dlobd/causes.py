"""Why a job did not end well, in one line, from a bundle's evidence."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator

from dlobd.importers import log4j
from dlobd.importers.evidence import Evidence

MAX_CAUSE_CHARACTERS = 300

_SAID = re.compile(r"^dlobd: job failed: (.*)$", re.MULTILINE)
_TRAINER_DIED = re.compile(r"trainer process (\d+) died: killed by signal \d+")
_CONTAINER_EXIT = re.compile(r"Exit code from container (\S+) is : (\d+)")
_MEMORY_LIMIT = re.compile(r"containerID=(container_\w+)\] is running (.* memory limit\. Current usage: [^;]+ used)")


def failure(evidence: Evidence) -> str:
    """Why a job ended with an exit code other than 0, in one line.

    A death has consequences: a rank that lost its peer fails as well, and is often the first to say so. So the death of
    a process counts before anything that somebody said, and of several deaths the earliest.
    """
    cause = (
        _submitter_killed(evidence)
        or next(_memory_limits(evidence), None)
        or min(_deaths(evidence), default=(0, None))[1]
        or _said(evidence)
        or _reported(evidence)
        or f"spark-submit exited with code {evidence.window['exit_code']}"
    )
    return " ".join(cause.split())[:MAX_CAUSE_CHARACTERS]


def _signal_name(number: int) -> str:
    """`signal 9 (SIGKILL)`."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _submitter_killed(evidence: Evidence) -> str | None:
    """What runs on this machine: the JVM of spark-submit, and the driver's Python below it."""
    code = evidence.window["exit_code"]
    if code < 0:
        who = "the ranks' parent process" if evidence.native else "spark-submit"
        return f"{who} was killed by {_signal_name(-code)}"
    if 128 < code < 160 and not _said(evidence):  # as a shell writes it
        return f"the driver's Python was killed by {_signal_name(code - 128)}"
    return None


def _memory_limits(evidence: Evidence) -> Iterator[str]:
    """Containers that a NodeManager killed because they were too large."""
    for line in evidence.yarn.diagnostics:
        if match := _MEMORY_LIMIT.search(line):
            yield (
                f"{_name(evidence, match[1])} was killed by YARN: it ran {match[2]}; "
                "raise executor_overhead_mb or lower batch_size"
            )


def _deaths(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """(time, sentence) of each process of a container that was killed or failed while the job ran."""
    ranks = {process.process.pid: process.process for process in evidence.processes}
    for process in evidence.processes:
        for instant in process.instants:
            match = _TRAINER_DIED.search(str(instant.attrs.get("cause", "")))
            if instant.name == "trainer died" and match:
                rank = ranks.get(int(match[1]))
                yield instant.at_ns, f"{rank.role} {rank.index}: {match[0]}" if rank else match[0]
    for at_ns, container, code in _exits(evidence):
        # 143: the NodeManager's own SIGTERM, at the end of an application
        if code not in (0, 143) and at_ns <= evidence.window["exit_ns"]:
            how = f"was killed by {_signal_name(code - 128)}" if 128 < code < 193 else f"ended with exit code {code}"
            yield at_ns, f"{_name(evidence, container)} {how}"


def _exits(evidence: Evidence) -> Iterator[tuple[int, str, int]]:
    """(time, container, exit code) as the NodeManagers saw it."""
    number = (evidence.window["application_id"] or "application_none").removeprefix("application_")
    for path in sorted((evidence.path / "logs" / "daemons").glob("nodemanager-*.log")):
        for line in log4j.read(path, path.name):
            match = _CONTAINER_EXIT.search(line.message)
            if match and f"_{number}_" in match[1]:
                yield line.at_ns, match[1], int(match[2])


def _name(evidence: Evidence, container: str) -> str:
    executors = {found: executor for executor, found in evidence.application_master.containers.items()}
    if container in executors:
        return f"executor {executors[container]} ({container})"
    return f"the ApplicationMaster ({container})" if container.endswith("_000001") else container


def _said(evidence: Evidence) -> str | None:
    """The driver's last words. spark-submit puts both of its outputs into its own standard output, or YARN into that of
    the ApplicationMaster."""
    outputs = [evidence.path / "logs" / name for name in ("driver.stdout", "driver.stderr")]
    outputs += [evidence.path / "logs" / "containers" / container / "stdout" for container in evidence.containers[:1]]
    texts = [path.read_text(errors="replace") for path in outputs if path.exists()]
    said = [str(line) for text in texts for line in _SAID.findall(text)]
    return said[-1].strip() if said else None


def _reported(evidence: Evidence) -> str | None:
    """What YARN or the driver's JVM wrote."""
    path = evidence.path / "evidence" / "rm-app.json"
    app = json.loads(path.read_text() or "{}") if path.exists() else {}
    words = [*app.get("diagnostics", "").splitlines(), *evidence.driver_log.errors]
    return next((line for line in words if line.strip()), None)
