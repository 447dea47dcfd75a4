"""Finds the reason of a job's failure in a bundle's evidence, as one line, and the facts about it: its phase, and the
traceback of the user's code in a log."""

import re
import signal
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from dlobd import spans as kinds
from dlobd.bundle import files, reading
from dlobd.evidence import log4j
from dlobd.evidence.evidence import Evidence
from dlobd.job.launchers.failure import cause_in, innermost_thrown, java_cause, without_classes, without_module
from dlobd.record.run import Failure, Phase
from dlobd.schema import Event, OwnJob, Runnable, Status

MAX_REASON_CHARACTERS, MAX_CAUSE = 300, 100_000

WITHOUT_SPARK = "Your script never started a SparkContext, so there is nothing to break down"

_FAILURE_MESSAGE = re.compile(rf"^{kinds.JOB_FAILED_LINE}(.*)$", re.MULTILINE)
_ABOUT_HDFS = re.compile(r"NameNode|DataNode|hdfs|blk_|datanode|Connection refused|:\d+ failed on|destination host is")
_CONTAINER_EXIT = re.compile(r"Exit code from container (\S+) is : (\d+)")
_REFUSED = re.compile(r"InvalidResourceRequestException: (?:Invalid resource request! )?(.*?)[, ]*$", re.MULTILINE)
_MEMORY_LIMIT = re.compile(r"containerID=(container_\w+)\] is running (.* memory limit\. Current usage: [^;]+ used)")

_LOG_LIMIT = re.compile(r"containerID=(container_\w+)\] is logging beyond the container (single|total) log")

_TIMESTAMP = re.compile(r"^(\d{6,} \S+|\d\d/\d\d/\d\d \S+) (?=[A-Z]+ )")
"""The timestamp of a log4j line, in dlobd's pattern or in Spark's."""
_NOT_AN_ERROR = re.compile(
    rf"(?:{_TIMESTAMP.pattern[1:]})?(?:TRACE|DEBUG|INFO|WARN|WARNING:?) |at \S+\(|\.\.\. \d+ (?:common|more)"
    r"|\S+Z \S+ INFO |Provider '|priority = |loggerContextFactory = "
)
"""Lines of Java logs that are not errors; the last alternatives match log4j's own lines."""

_WEB_UI_RACE = re.compile(
    r"JavaSparkContext\.\s*: (java\.(?:util\.ConcurrentModification|lang\.IllegalState)Exception).*sparkproject\.jetty",
    re.DOTALL,
)
_WEB_UI_RACE_TEXT = "Spark's driver hit a race condition while setting up its web pages"
"""Spark 4.3 in client mode on YARN: one thread attaches the pages (SparkUI.attachAllHandlers), and another adds YARN's
filter to them (YarnSchedulerBackend's AddWebUIFilter). dlobd switches the pages off; a user's job may keep them."""

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


def ended_badly(evidence: Evidence, limits: Runnable) -> str | None:
    """Return the reason of a job that failed or timed out; None for a successful or interrupted job. `limits` has
    timeout_s and accept_timeout_s."""
    window = evidence.window
    if window["ended_by"] == "timeout":
        return timed_out(evidence, limits.timeout_s)
    if window["ended_by"] == "accept timeout":
        return never_started(evidence, limits.accept_timeout_s)
    return failure(evidence) if window["exit_code"] else None


def failure(evidence: Evidence) -> str:
    """Return the reason of a job with an exit code other than 0.

    A rank that loses its peer also fails, and often reports first. So the death of a process takes precedence over any
    message, and the earliest death over later deaths.
    """
    reason = (
        _submitter_killed(evidence)
        or next(_limits(evidence), None)
        or _refused(evidence)
        or _master_in_container(evidence)
        or without_spark(evidence)
        or _without_hdfs(evidence, "namenode")
        or min([*_deaths(evidence), *_lost_nodes(evidence)], default=(0, None))[1]
        or _without_hdfs(evidence, "datanode")
        or _message(evidence)
    )
    return one_line(reason)


def without_spark(evidence: Evidence) -> str | None:
    """Return the reason of a user's script that ended well without a SparkContext; None for any other job."""
    driver = evidence.driver_process
    if not evidence.topology.user_script or driver is None:
        return None
    if driver.instant(kinds.SPARK_CONTEXT_START) or driver.instant(kinds.JOB_FAILED):
        return None
    ended = [span for span in driver.named(kinds.USER_CODE) if not span.truncated]
    return WITHOUT_SPARK if ended else None


def timed_out(evidence: Evidence, timeout_s: int) -> str:
    """Return the failure reason of a job that dlobd ended after `timeout_s`, with the driver's call at that time."""
    deadline_ns = evidence.window["exec_ns"] + timeout_s * 1_000_000_000
    death = min((candidate for candidate in _trainer_deaths(evidence) if candidate[0] < deadline_ns), default=None)
    reason = f"not finished after timeout_s = {timeout_s} s"
    if death:
        return one_line(f"{death[1]}; {reason}")
    # the open spans of a process are nested: the last one is what it was doing
    spans = evidence.driver_process.spans if evidence.driver_process else None
    if spans is not None and (open_ := spans.where(spans.truncated)):
        last = max(open_, key=lambda span: span.start_ns)
        reason += f": the driver was in {last.name} for {(deadline_ns - last.start_ns) / 1e9:.1f} s"
    return one_line(f"{reason}; raise it with --set timeout_s=...")


def never_started(evidence: Evidence, accept_timeout_s: int) -> str:
    """Return the ResourceManager's reason for an application that stayed in ACCEPTED."""
    diagnostics = re.sub(r"^\[[^]]*\]", "", evidence.window["diagnostics"].strip()) or "none"
    return one_line(f"still ACCEPTED after accept_timeout_s = {accept_timeout_s} s; YARN's diagnostics: {diagnostics}")


def one_line(reason: str) -> str:
    """Shorten a reason to one line of at most MAX_REASON_CHARACTERS."""
    shown = "".join(one if one.isprintable() else "\ufffd" for one in " ".join(reason[:MAX_CAUSE].split()))
    return textwrap.shorten(shown, MAX_REASON_CHARACTERS, placeholder=" ...")


def _message(evidence: Evidence) -> str:
    """Return the error message of a rank, the driver or YARN, in this order: a driver may know only a failed job."""
    if chosen := _driver_causes(evidence, kinds.TRAINING_FAILED):
        return chosen[-1]
    message = _driver_message(evidence)
    stderr = evidence.path / files.DRIVER_STDERR
    if message and (race := _WEB_UI_RACE.search(f"{message}\n{reading.text(stderr)}")):
        return f"{_WEB_UI_RACE_TEXT} ({race[1]}); remove spark.ui.enabled=true"
    # a rank records its failure even if it cannot write to HDFS
    instants = (i for process in evidence.processes for i in process.instants if i.name == kinds.RANK_FAILED)
    if failures := [(instant.at_ns, str(instant.attrs["cause"])) for instant in instants]:
        return min(failures)[1]
    if message or (message := java_cause(uncaught(stderr))):
        return message
    # the evidence of the driver's JVM has only lines of the classes that dlobd reads
    logged = [line.message for line in log4j.read(stderr) if line.level == "ERROR"]
    errors = [*evidence.rm_app.get("diagnostics", "").splitlines(), *evidence.driver.log.errors, *logged]
    if reported := next((line for line in errors if line.strip()), None):
        return without_classes(reported)
    if evidence.topology.by_hand:
        return f"YARN's final status is {evidence.rm_app.get('finalStatus')}"
    exited = f"spark-submit exited with code {evidence.window['exit_code']}"
    lines = [line.strip() for line in reading.lines(stderr)]
    last = next((line for line in reversed(lines) if line and not _NOT_AN_ERROR.match(line)), "")
    return f"{exited}: {without_classes(_TIMESTAMP.sub('', last))}" if last else exited


def uncaught(stderr: Path) -> str:
    """Return the stack trace of the last exception that ended the JVM; empty without one."""
    _, found, trace = reading.text(stderr).rpartition('Exception in thread "main"')
    return found + trace if found else ""


def diverged(evidence: Evidence) -> bool:
    """Return True if a rank stopped because its loss became NaN or infinite."""
    return any(process.instant(kinds.DIVERGED) for process in evidence.processes)


def _without_hdfs(evidence: Evidence, kind: str) -> str | None:
    """Return the reason if a daemon of this kind died and the error message is about HDFS; else None."""
    message = _message(evidence)
    for daemon in evidence.daemons:
        if daemon["kind"] == kind and not daemon["alive"] and _ABOUT_HDFS.search(message):
            return f"{daemon['name']} ({daemon['host']}:{daemon['ports']['http']}) died during the job: {message}"
    return None


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _submitter_killed(evidence: Evidence) -> str | None:
    """Return the reason if a signal killed spark-submit or its child, the driver's Python."""
    code = evidence.window["exit_code"]
    if code < 0:
        process = "spark-submit" if evidence.topology.has_spark else "the ranks' parent process"
        return f"{process} was killed by {_signal_name(-code)}"
    if 128 < code < 160 and not _driver_message(evidence):  # a shell adds 128 to the signal
        return f"the driver's Python was killed by {_signal_name(code - 128)}"
    return None


def _master_in_container(evidence: Evidence) -> str | None:
    """Return the reason if an ApplicationMaster waited for a SparkContext that has another master."""
    master = evidence.topology.own_master if evidence.topology.driver_in_container else ""
    if not master or _driver_message(evidence) is not None:
        return None
    return f"the script set its master to {master}: in cluster mode Spark fails such a job; omit the master"


def _limits(evidence: Evidence) -> Iterator[str]:
    """Yield a reason for each container that a NodeManager killed because it exceeded a limit of memory or logs."""
    for line in (*evidence.yarn.diagnostics, *evidence.driver.log.errors):
        if match := _LOG_LIMIT.search(line):
            limit = f"{'total' if match[2] == 'total' else 'dir'}-size-limit-bytes; raise it, or record_every_steps"
            killed = f"{_name(evidence, match[1])} was killed by YARN: its logs, with dlobd's span files, exceed "
            yield f"{killed}yarn.nodemanager.container-log-monitor.{limit}"
        if match := _MEMORY_LIMIT.search(line):
            yield (
                f"{_name(evidence, match[1])} was killed by YARN: it was running {match[2]}; "
                "raise executor_overhead_mb or lower batch_size"
            )


def _refused(evidence: Evidence) -> str | None:
    """Return YARN's answer to an ApplicationMaster that requested containers too large for every node."""
    for log in sorted((evidence.path / files.CONTAINER_LOGS).glob("*_000001/s*")):  # spark.log, stderr
        if match := _REFUSED.search(reading.text(log)):
            return f"YARN refused the request for executors: {match[1]}"
    return None


def _deaths(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """Yield the time and cause of each death or failure of a container's process during the job."""
    yield from _trainer_deaths(evidence)
    user_exit = evidence.application_master.user_exit
    if user_exit and 128 < user_exit[1] < 193:
        yield user_exit[0], f"the driver's Python was killed by {_signal_name(user_exit[1] - 128)}"
    ids = [str(one.window["application_id"]).removeprefix("application_") for one in evidence.applications]
    paths = sorted((evidence.path / files.DAEMON_LOGS).glob("nodemanager-*.log"))
    for line in (line for path in paths for line in log4j.read(path, path.name)):
        match = _CONTAINER_EXIT.search(line.message)
        if match is None or not any(f"_{number}_" in match[1] for number in ids):
            continue
        container, code = match[1], int(match[2])
        if user_exit and container.endswith("_000001"):
            continue  # the container exits with the code of the driver's Python
        # 143: the NodeManager's own SIGTERM, at the end of an application
        if code not in (0, 143) and line.at_ns <= evidence.window["exit_ns"]:
            end = f"was killed by {_signal_name(code - 128)}" if 128 < code < 193 else f"exited with code {code}"
            yield line.at_ns, f"{_name(evidence, container)} {end}"


def _trainer_deaths(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """Yield the time and cause of the death of each trainer that a signal killed, as its parent recorded them."""
    ranks = {process.process.pid: process.process for process in evidence.processes}
    for instant in (instant for process in evidence.processes for instant in process.instants):
        # the NodeManager itself sends SIGTERM at the end of an application
        if instant.name == kinds.TRAINER_DIED and (code := instant.attrs["code"]) < 0 and code != -signal.SIGTERM:
            rank = ranks.get(instant.attrs["pid"])
            cause = str(instant.attrs["cause"])
            yield instant.at_ns, f"{rank.role} {rank.index}: {cause}" if rank else cause


def _lost_nodes(evidence: Evidence) -> Iterator[tuple[int, str]]:
    """Yield the time and cause of each node loss, from the logs of the ResourceManager and of the driver."""
    # the only source on an external cluster: the ResourceManager's lines about nodes name no application
    for gone in evidence.driver.log.lost:
        yield gone.at_ns, f"node {gone.host} was lost while the job ran, with {_name(evidence, gone.container)}"
    for lost in evidence.yarn.lost_nodes:
        port = int(lost.node.rpartition(":")[2])
        daemon = next((d for d in evidence.daemons if d["kind"] == "nodemanager" and d["ports"]["rpc"] == port), None)
        name = daemon["name"] if daemon else "a NodeManager"
        lines = evidence.daemon_log(name)
        own = f"daemons/{name}.log"
        containers = [
            c for c, marks in evidence.yarn.containers.items() if marks.source.get("RUNNING", "").startswith(own)
        ]
        names = ", ".join(_name(evidence, container) for container in sorted(containers))
        if lost.unhealthy:
            if containers:
                yield lost.at_ns, f"YARN marked {name} unhealthy ({lost.unhealthy}) and killed its containers: {names}"
            continue
        with_ = f", with {names}" if containers else ""
        state = "stopped responding" if daemon is None or daemon["alive"] else "died"
        cause = f"YARN got no heartbeat from its node {lost.node} for {lost.patience} and marked it lost{with_}"
        yield lines[-1].at_ns if lines else lost.at_ns, f"{name} {state}: {cause}"


def _name(evidence: Evidence, container: str) -> str:
    if executor := evidence.executor_of.get(container):
        return f"executor {executor} ({container})"
    if container in evidence.attempts.ams or container.endswith("_000001"):
        in_container = evidence.topology.driver_in_container
        role = "the driver's JVM, which is the ApplicationMaster" if in_container else "the ApplicationMaster"
        return f"{role} ({container})"
    return container


def _driver_message(evidence: Evidence) -> str | None:
    """Return the driver's last failure message. It is in the stdout or stderr of spark-submit, or in the
    ApplicationMaster's stdout, which has both outputs of the driver."""
    outputs = [evidence.path / name for name in (files.DRIVER_STDOUT, files.DRIVER_STDERR)]
    outputs.append(evidence.path / files.CONTAINER_LOGS / evidence.attempts.am / "stdout")
    messages = [str(line) for path in outputs for line in _FAILURE_MESSAGE.findall(reading.text(path))]
    messages += _driver_causes(evidence, kinds.JOB_FAILED)  # a user's script may not print its failure
    return messages[-1].strip() if messages else None


def _driver_causes(evidence: Evidence, kind: kinds.InstantKind) -> list[str]:
    driver = evidence.driver_process
    return [str(instant.attrs["cause"]) for instant in driver.instants if instant.name == kind] if driver else []


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


def failure_facts(
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
