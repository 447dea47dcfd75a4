"""Finds the facts about a failure in a bundle: its phase, and the traceback of the user's code in a log. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from dlobd import spans as kinds
from dlobd.bundle import files, reading
from dlobd.evidence.evidence import Evidence
from dlobd.job.launchers.failure import cause_in, innermost_thrown, without_module
from dlobd.record.run import Failure, Phase
from dlobd.schema import Event, OwnJob, Runnable, Status
from dlobd.trust.reasons import uncaught, without_spark

MOST_LINES = 15
"""Largest number of recorded lines of a traceback."""

MOST_HEAD = 4
"""Largest number of recorded lines of an error's message."""

COMPARED = 100
"""Characters that identify an error in the reason, which may be shortened."""

HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(.+)", line (\d+)')
_LOG_LINE = re.compile(r"(?:\d{6,} \S+|\d\d/\d\d/\d\d \S+) [A-Z]+ ")

START_UP = "start-up"

RUN_AGAIN = "run it again"
COMPARE_SOURCES = "find out why the two sources of the check differ; until then, do not use the figures"
START_SPARK = "check that it calls SparkSession.builder.getOrCreate()"


@dataclass(slots=True)
class Traceback:
    """A Python traceback in a log. `message`: the error line, and the lines that belong to it."""

    lines: list[str] = field(default_factory=list)
    frames: list[tuple[str, int]] = field(default_factory=list)
    message: list[str] = field(default_factory=list)

    def is_of(self, reason: str) -> bool:
        """Return True if the reason has this error, or the cause inside its message."""
        causes = without_module(self.message[0]), cause_in("\n".join(self.message))
        return any(" ".join(cause.split())[:COMPARED] in reason for cause in causes if cause)

    @property
    def head(self) -> list[str]:
        """The first lines of the message; lines that begin with a space, a tab or a colon are Spark's and Java's."""
        return list(takewhile(lambda line: line and line[0] not in " \t:", self.message))[:MOST_HEAD]

    def begin_in(self, name: str) -> int:
        """Return the index of the line of the outermost frame in a file of that name; 0 without one."""
        frames = ((at, _FRAME.match(line)) for at, line in enumerate(self.lines))
        return next((at for at, frame in frames if frame and Path(frame[1]).name == name), 0)

    def line_in(self, name: str) -> int | None:
        """Return the line of the innermost frame in a file of that name; None without one."""
        return next((line for file, line in reversed(self.frames) if Path(file).name == name), None)


def failure(
    evidence: Evidence, chosen: Runnable, status: Status, reason: str, phases: Sequence[Phase], startup: Sequence[Event]
) -> Failure:
    """Return the facts about a run that is not ok."""
    phase = _phase(evidence, phases)
    known = Failure(phase=phase, after=startup[-1].event if startup and phase == START_UP else None)
    if status == "interrupted":
        return replace(known, next_step=RUN_AGAIN)
    if status == "invalid" and not evidence.window["exit_code"]:
        no_spark = without_spark(evidence) is not None
        return Failure(next_step=START_SPARK if no_spark else COMPARE_SOURCES, no_spark=no_spark)
    file = chosen.script if isinstance(chosen, OwnJob) else chosen.model.partition(":")[0]
    name, logs = Path(file).name, [path for path in _logs(evidence) if reading.size(path)]
    for log in logs:
        found = [one for one in tracebacks(reading.lines(log)) if one.is_of(reason)]
        if not found:
            continue
        last = next((one for one in reversed(found) if one.line_in(name)), found[-1])
        return replace(
            known,
            file=file if last.line_in(name) else None,
            line=last.line_in(name),
            traceback=(*last.lines[last.begin_in(name) :], *last.head)[-MOST_LINES:],
            java_cause=innermost_thrown("\n".join(last.message)),
            log=str(log.relative_to(evidence.path)),
        )
    log_name = str(logs[0].relative_to(evidence.path)) if logs else None
    return replace(known, java_cause=innermost_thrown(uncaught(evidence.path / files.DRIVER_STDERR)), log=log_name)


def _phase(evidence: Evidence, phases: Sequence[Phase]) -> str:
    """Return the last phase that is known to have begun."""
    if not phases:
        return START_UP
    began = [process for process in evidence.processes if process.instant(kinds.FIRST_BATCH)]
    ended = began and all(process.instant(kinds.LAST_STEP_DONE) for process in began)
    return phases[-1 if ended else 1].phase


def _logs(evidence: Evidence) -> Iterator[Path]:
    """Yield the logs that may have the error, the driver's first."""
    yield from (evidence.path / name for name in (files.DRIVER_STDERR, files.DRIVER_STDOUT))
    containers = evidence.path / files.CONTAINER_LOGS
    others = sorted(path for output in ("stderr", "stdout") for path in containers.glob(f"*/{output}"))
    # in cluster mode the ApplicationMaster's container has the driver's output
    yield from sorted(others, key=lambda path: path.parent.name != evidence.attempts.am)


def tracebacks(lines: Sequence[str]) -> Iterator[Traceback]:
    """Yield the tracebacks of a log, also those inside the messages of others."""
    found = Traceback()
    for line in lines:
        header, frame = line.endswith(HEADER), _FRAME.match(line)
        in_message = found.message or (found.lines and not header and not line.startswith(" "))
        starts = header or (frame and (found.message or not found.lines))  # a SyntaxError has no header
        if starts or (in_message and _LOG_LINE.match(line)):
            if found.message:
                yield found
            found = Traceback([HEADER] if header else [])
        elif in_message:
            found.message.append(line)
        if frame:
            found.frames.append((frame[1], int(frame[2])))
        if (frame or found.lines) and not (header or found.message):
            found.lines.append(line)
    if found.message:
        yield found
