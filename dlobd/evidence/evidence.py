"""The evidence of one run in a bundle, parsed once. An absent source is empty: a run may have ended early."""

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from dlobd import schema
from dlobd import spans as kinds
from dlobd.bundle import files, reading
from dlobd.bundle.reading import Damaged
from dlobd.evidence import event_log, facts, hdfs, jvm, own_steps, recorder, resources, rpc, slots, spark, yarn
from dlobd.evidence.alignment import Alignment, logs_of
from dlobd.evidence.event_log import EventLog
from dlobd.evidence.facts import Documents
from dlobd.evidence.log4j import LogLine
from dlobd.evidence.recorder import RecordedProcess
from dlobd.evidence.topology import APPLICATION_LANE, Topology
from dlobd.evidence.yarn import Attempts
from dlobd.spans import JsonMap
from dlobd.tracing.clock import WallToMonotonic


@dataclass(frozen=True)
class JvmRecords:
    """The records of the JVM of spark-submit or of the driver, read when first used."""

    _read_lines: Callable[[], Sequence[LogLine]]
    _read_life: Callable[[], jvm.JvmLife | None]
    _read_log: Callable[[Sequence[LogLine]], spark.DriverLog] = spark.driver

    @cached_property
    def lines(self) -> Sequence[LogLine]:
        return self._read_lines()

    @cached_property
    def log(self) -> spark.DriverLog:
        """The events of its log."""
        return self._read_log(self.lines)

    @cached_property
    def calls(self) -> list[rpc.Call]:
        """Its calls to HDFS and YARN."""
        return rpc.calls(self.lines)

    @cached_property
    def life(self) -> jvm.JvmLife | None:
        """Start, end and pauses of the JVM; None without a JVM log."""
        return self._read_life()


@dataclass(frozen=True)
class Evidence:
    """The logs and records of a bundle, read when first used. Reading has no side effects."""

    path: Path
    _container_logs: dict[str, list[LogLine]] = field(default_factory=dict, init=False, repr=False, compare=False)
    number = 1  # of the application, in the order of the SparkContexts; 0: nothing of it was collected

    @cached_property
    def window(self) -> facts.Window:
        """The window of the run. Raises BundleError if it is missing or damaged."""
        window: facts.Window = self._documents.needed(files.WINDOW)
        return window

    @cached_property
    def applications(self) -> "list[Evidence]":
        """The evidence of each application, in their order: a script may stop its SparkContext and create another."""
        parts = spark.contexts(self.submitter.lines)
        if len(parts) < 2 or self.topology.driver_in_container:
            return [self]
        python = self.driver_process
        ready = [i for i in python.instants if i.name == kinds.SPARK_CONTEXT_READY] if python else []
        known: list[str] = self.window.get("applications", [])
        found: list[Application] = []
        lines: list[LogLine] = []
        for part, after in zip(parts, [*parts[1:], None], strict=True):
            lines += part
            end_ns = after[0].at_ns if after else sys.maxsize
            context = next((i.attrs for i in ready if part[0].at_ns <= i.at_ns < end_ns), {})
            announced = (spark.ANNOUNCED.search(line.message) for line in part)
            id_ = context.get("application_id") or next((match[1] for match in announced if match), "")
            # a SparkContext that could not be created: its lines belong to the next; a damaged log may repeat an ID
            if not id_ or any(id_ == one.id for one in found):
                continue
            number = known.index(id_) + 1 if id_ in known else 0 if known else len(found) + 1
            found.append(Application(self.path, self, id_, context.get("master", ""), (*lines,), end_ns, number))
            lines = []
        return [*found] if len(found) > 1 else [self]

    @property
    def application_lane(self) -> str:
        return APPLICATION_LANE if self.number == 1 else f"{APPLICATION_LANE}-{self.number}"

    def file_of(self, name: str) -> str:
        """Return the name of a file of this application, from its name for the first application."""
        return files.of_application(name, self.number)

    def has(self, at_ns: int) -> bool:
        """Return True if a time is one of this application, by the driver's JVM."""
        return True

    def _driver_log(self, lines: Sequence[LogLine]) -> spark.DriverLog:
        logs = [one.submitter.log for one in self.applications if one is not self]
        return spark.joined(logs) if logs else spark.driver(lines, self.number)

    @cached_property
    def _documents(self) -> Documents:
        return Documents(self.path)

    def document(self, name: str) -> Any:
        """Return a JSON document, as in `facts.DOCUMENTS`; None if it is missing or damaged."""
        return self._documents.get(name, None)

    @cached_property
    def damaged(self) -> dict[str, str]:
        """Name of each damaged or partly damaged file -> the reason."""
        found = self._documents.damaged | dict(reading.damage(self.path))
        if bad := [(name, result) for name, result in self._results.items() if isinstance(result, Damaged)]:
            name, result = bad[0]
            found[files.MARKERS] = f"is damaged: {name}: {result.reason}"
        if self.resources is None and reading.size(self.path / files.RESOURCES):
            found.setdefault(files.RESOURCES, "has no sample")
        for name, log in ((files.EVENT_LOG, self.event_log), (files.RESOURCES, self.resources)):
            if log and log.damaged_lines:
                found[name] = f"has {log.damaged_lines} damaged lines"
        return found

    @cached_property
    def anchors(self) -> tuple[schema.ClockAnchor, ...]:
        """Wall-clock anchors of the client and of every recorded process."""
        return (*self.own_anchors, *(anchor for process in self.processes for anchor in process.anchors))

    @cached_property
    def own_anchors(self) -> list[schema.ClockAnchor]:
        """Wall-clock anchors of the client."""
        return [schema.ClockAnchor(**anchor) for anchor in self.window["anchors"]]

    @property
    def domain(self) -> str:
        """The clock domain of the client, and of the window: host and boot."""
        return self.own_anchors[0].domain

    @property
    def host(self) -> str:
        """The host of the client."""
        return self.domain.split("/")[0]

    @cached_property
    def clock_differences_ns(self) -> list[int]:
        """Wall clock minus monotonic clock at each reading of both."""
        every = (*self.own_anchors, *(anchor for process in self._recorded for anchor in process.anchors))
        return [anchor.wall_ns - anchor.monotonic_ns for anchor in every]

    @cached_property
    def processes(self) -> list[RecordedProcess]:
        """The processes of the job that recorded spans, without processes of lost attempts."""
        return [process for process in self.all_processes if not process.is_child]

    @cached_property
    def children(self) -> list[RecordedProcess]:
        """The processes that user code forked and that recorded spans, without processes of lost attempts."""
        return [process for process in self.all_processes if process.is_child]

    @cached_property
    def all_processes(self) -> list[RecordedProcess]:
        """`processes` and `children`, in the order in which they opened their files."""
        counting = [process for process in self._recorded if process.path.parent.name not in self.lost_containers]
        return sorted(map(self.alignment.process, counting), key=lambda process: process.opened_ns)

    @cached_property
    def span_files(self) -> dict[Path, RecordedProcess | None]:
        """All span files, read once; None for a file whose first line is damaged. Times are those of their hosts."""
        return recorder.read_files(self.path / "spans")

    @cached_property
    def _recorded(self) -> list[RecordedProcess]:
        found = recorder.processes(self.span_files)
        for process in found:
            process.spans = own_steps.numbered(process.spans)
        return found

    @cached_property
    def alignment(self) -> Alignment:
        """The conversion of other hosts' clocks to the clock of the window."""
        reference = self.own_anchors if self._documents.has(files.WINDOW) else []
        return Alignment(reference, self._recorded, logs_of(self.path))

    @cached_property
    def driver_process(self) -> RecordedProcess | None:
        """The Python process of the driver."""
        return next((p for p in self.processes if p.process.role == "driver"), None)

    @cached_property
    def chief(self) -> RecordedProcess | None:
        """The trainer that evaluates; rank 0 of a training job."""
        return next((p for p in self.processes if p.process.role == "chief"), None)

    @cached_property
    def job(self) -> JsonMap:
        """`dlobd.job.description.Job` as a dict. Raises BundleError if it is missing or damaged."""
        job: JsonMap = self._documents.needed(files.JOB)
        return job

    @cached_property
    def topology(self) -> Topology:
        """The topology of the run. Raises BundleError if the job is missing or damaged."""
        job = self.job
        # only the evidence of an external cluster has this REST record
        external = self.on_file(files.RM_ATTEMPTS) or files.RM_ATTEMPTS in self._documents.damaged
        by_hand = self._documents.has(files.WINDOW) and self.window.get("by_hand", False)
        # a user's script may have several SparkContexts; its last attempt counts
        drivers = [process for process in self._recorded if process.process.role == "driver"]
        ready = [i.attrs for i in drivers[-1].instants if i.name == kinds.SPARK_CONTEXT_READY] if drivers else []
        return Topology.of(job, by_hand, external, [one["master"] for one in ready if one.get("master")])

    @cached_property
    def span_cost(self) -> facts.SpanCost | None:
        """The measured cost of a span; None if it was not measured."""
        return self._documents.get(files.SPAN_COST, None)

    @cached_property
    def collected(self) -> facts.Collected:
        """The report of the collection of this evidence."""
        return self._documents.get(files.COLLECTED, facts.Collected(missing=[], metrics={}))

    @cached_property
    def submitter(self) -> JvmRecords:
        """The JVM of spark-submit."""
        return JvmRecords(
            lambda: self._log(self.submitter_log),
            lambda: self.alignment.jvm(jvm.read(self.path / files.DRIVER_JVM_LOG), self.path / self.submitter_log),
            self._driver_log,
        )

    @cached_property
    def own_logs(self) -> bool:
        """True if Spark's JVMs have logs at dlobd's levels; else their stderr is read."""
        found = (self.path / files.CONTAINER_LOGS).glob(f"*/{files.SPARK_LOG}")
        return self.on_file(files.DRIVER_LOG) or any(map(reading.is_file, found))

    @property
    def submitter_log(self) -> str:
        """The name of the log of spark-submit's JVM."""
        return files.DRIVER_LOG if self.own_logs else files.DRIVER_STDERR

    def log_of(self, container: str) -> str:
        """Return the name of the log of a container's JVM."""
        return f"{files.CONTAINER_LOGS}/{container}/{files.SPARK_LOG if self.own_logs else 'stderr'}"

    @cached_property
    def driver(self) -> JvmRecords:
        """The JVM of the SparkContext."""
        if not self.topology.driver_in_container:
            return self.submitter
        am = self.attempts.am
        return JvmRecords(lambda: self.container_log(am) if am else [], lambda: self.container_jvm(am) if am else None)

    @cached_property
    def yarn(self) -> yarn.YarnLife:
        """The application's transitions at the ResourceManager and the NodeManagers. For several applications: those of
        the first, with the containers of all."""
        if len(self.applications) > 1:
            return yarn.joined([one.yarn for one in self.applications])
        managers = [
            line for path in self._daemons("nodemanager") for line in self._log(f"{files.DAEMON_LOGS}/{path.name}")
        ]
        application_id = self.window["application_id"] or "application_0_0"
        life = yarn.life(self._log(f"{files.DAEMON_LOGS}/resourcemanager.log"), managers, application_id)
        if not life.application.at and self.rm_app.get("startedTime"):
            yarn.add_rest_times(life, self.rm_app, WallToMonotonic(self.anchors[:1]).ms)
        return life

    @cached_property
    def rm_app(self) -> facts.RmApplication:
        """The ResourceManager's REST record of the application; empty without one."""
        return self._documents.get(files.RM_APPLICATION, facts.RmApplication())

    @cached_property
    def containers(self) -> list[str]:
        """Container IDs of all applications and attempts, the ApplicationMaster of each attempt first."""
        return sorted(path.name for path in (self.path / files.CONTAINER_LOGS).glob("container_*"))

    @cached_property
    def attempts(self) -> Attempts:
        """The attempts of the application, or of the first in YARN."""
        return Attempts(next((one.containers for one in self.applications if one.containers), []))

    @cached_property
    def lost_containers(self) -> list[str]:
        """Containers of attempts that lost their driver with the ApplicationMaster, so that all work was repeated."""
        if not self.topology.driver_in_container:
            return []
        return [name for name in self.containers if self.attempts.am_of(name) != self.attempts.am]

    @cached_property
    def am_logs(self) -> dict[str, spark.AmLog]:
        """The ApplicationMaster's log of each attempt, by its container."""
        return {container: spark.application_master(self.container_log(container)) for container in self.attempts.ams}

    @property
    def application_master(self) -> spark.AmLog:
        """The ApplicationMaster's log of the last attempt."""
        return self.am_logs.get(self.attempts.am, spark.AmLog())

    def am_log_of(self, container: str) -> spark.AmLog:
        """Return the log of the ApplicationMaster of a container's attempt."""
        return self.am_logs.get(self.attempts.am_of(container), spark.AmLog())

    @cached_property
    def _am_calls(self) -> dict[str, list[rpc.Call]]:
        return {container: rpc.calls(self.container_log(container)) for container in self.attempts.ams}

    def am_calls_of(self, container: str) -> list[rpc.Call]:
        """Return the calls to HDFS and YARN by the ApplicationMaster of a container's attempt."""
        return self._am_calls.get(self.attempts.am_of(container), [])

    @cached_property
    def start_calls(self) -> dict[str, rpc.Call]:
        """Container ID -> the call with which the ApplicationMaster started the container at its NodeManager."""
        marks = self.yarn.containers.items()
        starts_ns = {own: found.at["START_REQUEST"] for own, found in marks if "START_REQUEST" in found.at}
        return rpc.calls_of_starts((call for calls in self._am_calls.values() for call in calls), starts_ns)

    @cached_property
    def executor_containers(self) -> dict[str, str]:
        """Executor key -> the directory of its logs and spans; on YARN its container ID."""
        if len(self.applications) > 1:
            return {key: one for each in self.applications for key, one in each.executor_containers.items()}
        if self.topology.has_yarn:
            logs = (log for own, log in self.am_logs.items() if own not in self.lost_containers)
            return {self._key(executor): container for log in logs for executor, container in log.containers.items()}
        found = (self.path / files.CONTAINER_LOGS).glob("executor_*")
        keys = [path.name.removeprefix("executor_") for path in found]
        return {key: f"executor_{key}" for key in keys if self._key(key.rpartition(".")[2]) == key}

    def _key(self, executor: str) -> str:
        return files.executor_key(self.number, executor)

    @cached_property
    def executor_of(self) -> dict[str, str]:
        """ID of the executor in each container."""
        return {container: executor for executor, container in self.executor_containers.items()}

    @cached_property
    def executors(self) -> dict[str, spark.ExecutorLog]:
        """Executor ID -> its log."""
        ids = self.executor_containers
        return {executor: spark.executor(self.container_log(container)) for executor, container in sorted(ids.items())}

    @cached_property
    def slots(self) -> dict[str, dict[int, int]]:
        """Executor key -> task ID -> number of its slot, from 1; empty for executors that run one task at a time."""
        if len(self.applications) > 1:
            return {key: found for one in self.applications for key, found in one.slots.items()}
        python = self.driver_process if self.topology.user_script else None
        ready = [i for i in python.instants if i.name == kinds.SPARK_CONTEXT_READY] if python else []
        if all(i.attrs.get("slots", 1) == 1 for i in ready if self.has(i.at_ns)):
            return {}
        log = self.driver.log
        tasks = defaultdict(list)
        for task in log.tasks:
            tasks[task.executor].append(task)
        return {
            executor: slots.number(tasks[executor], own.finished, log.gone.get(executor) or log.removed.get(executor))
            for executor, own in self.executors.items()
        }

    def slot_of(self, executor: str, task: int | None) -> int:
        """Return the slot of a task; the first slot for work outside of tasks."""
        return self.slots.get(executor, {}).get(-1 if task is None else task, slots.FIRST)

    @cached_property
    def daemons(self) -> list[facts.Daemon]:
        """The daemons of the cluster at the time of the collection."""
        return self._documents.get(files.DAEMONS, [])

    def daemon_log(self, name: str) -> list[LogLine]:
        """Return the lines of the log of a daemon, such as nodemanager-0, during the run."""
        return self._log(f"{files.DAEMON_LOGS}/{name}.log")

    @cached_property
    def hdfs(self) -> hdfs.HdfsLife:
        """The logs and block locations of HDFS."""
        return hdfs.HdfsLife(
            lambda name: self._log(f"{files.DAEMON_LOGS}/{name}"),
            [path.name for path in self._daemons("datanode")],
            self._documents.get(files.BLOCKS, {}),
            self._documents.get(files.CHECKSUMS, facts.Checksums()),
        )

    @cached_property
    def event_log(self) -> EventLog:
        """Spark's event log; empty if it is missing."""
        if len(self.applications) > 1:
            return event_log.joined([one.event_log for one in self.applications])
        return event_log.parse(reading.lines(self.path / self.file_of(files.EVENT_LOG)))

    @cached_property
    def resources(self) -> resources.SampledHost | None:
        """The samples of the client's machine and its processes; None if it was not sampled."""
        return resources.read(reading.lines(self.path / files.RESOURCES))

    @cached_property
    def results(self) -> dict[int, facts.RankResult]:
        """Rank -> the content of its done-marker."""
        found = [result for result in self._results.values() if not isinstance(result, Damaged)]
        return {result["rank"]: result for result in found}

    @cached_property
    def _results(self) -> dict[str, facts.RankResult | Damaged]:
        markers: dict[str, str] = self._documents.get(files.MARKERS, {})
        of_ranks = {name: text for name, text in markers.items() if name.startswith("rank-")}
        return {name: reading.parse_json(text, facts.RankResult, infinite=True) for name, text in of_ranks.items()}

    def on_file(self, name: str) -> bool:
        """Return True if the bundle has a regular file of that name."""
        return reading.is_file(self.path / name)

    def container_log(self, container: str) -> list[LogLine]:
        """Return the lines of the JVM's log in a container."""
        if container not in self._container_logs:
            self._container_logs[container] = self._log(self.log_of(container))
        return self._container_logs[container]

    def log4j(self, container: str = "") -> tuple[int, int] | None:
        """Return start and end of log4j's configuration in the JVM of a container, by default of spark-submit."""
        name = self.log_of(container) if container else self.submitter_log
        stderr = f"{files.CONTAINER_LOGS}/{container}/stderr" if container else files.DRIVER_STDERR
        return self.alignment.log4j_configured(self.path / stderr, self.path / name)

    def container_jvm(self, container: str) -> jvm.JvmLife | None:
        """Return the life of a container's JVM."""
        log = self.path / self.log_of(container)
        return self.alignment.jvm(jvm.read(log.with_name("jvm.log")), log)

    def recorded_in(self, container: str) -> list[RecordedProcess]:
        """Return the processes of the job that recorded spans in a container."""
        return self._by_container.get(container, [])

    @cached_property
    def _by_container(self) -> dict[str, list[RecordedProcess]]:
        found: dict[str, list[RecordedProcess]] = defaultdict(list)
        for process in self.processes:
            found[process.path.parent.name].append(process)
        return found

    def _log(self, name: str) -> list[LogLine]:
        return self.alignment.log(self.path / name, name.removeprefix("logs/"))

    def _daemons(self, prefix: str) -> list[Path]:
        return sorted((self.path / files.DAEMON_LOGS).glob(f"{prefix}*.log"))


@dataclass(frozen=True)
class Application(Evidence):
    """The evidence of one of several applications of a run: its part of the driver's log, its containers and records.

    The keys of its executors are unique in the run (`files.executor_key`)."""

    whole: Evidence
    id: str
    master: str
    lines: tuple[LogLine, ...]  # of the driver's JVM
    end_ns: int  # start of the next SparkContext
    number: int

    @property
    def applications(self) -> list[Evidence]:
        return [self]

    def has(self, at_ns: int) -> bool:
        return self.lines[0].at_ns <= at_ns < self.end_ns

    @cached_property
    def window(self) -> facts.Window:
        return {**self.whole.window, "application_id": self.id}

    @property
    def _documents(self) -> Documents:
        return self.whole._documents

    @property
    def alignment(self) -> Alignment:
        return self.whole.alignment

    @property
    def all_processes(self) -> list[RecordedProcess]:
        return self.whole.all_processes

    @cached_property
    def topology(self) -> Topology:
        whole = self.whole.topology
        return Topology.of(self.job, whole.by_hand, whole.external, [self.master] if self.master else ())

    @cached_property
    def submitter(self) -> JvmRecords:
        return JvmRecords(lambda: self.lines, lambda: self.whole.submitter.life, self._driver_log)

    @cached_property
    def rm_app(self) -> facts.RmApplication:
        found: Any = reading.read_json(self.path / self.file_of(files.RM_APPLICATION), facts.RmApplication)
        return facts.RmApplication() if isinstance(found, Damaged | reading.Missing) else found

    @cached_property
    def containers(self) -> list[str]:
        number = self.id.removeprefix("application_")
        matched = ((name, yarn.CONTAINER.search(name)) for name in self.whole.containers)
        return [name for name, match in matched if match and match[1] == number]
