"""Runs of a self-test: every plan on one embedded cluster, scored, with bounded repetitions.

A plan has the delays of a run, which passes its points one after the other, so that it can have several delays. In each
block of a full self-test, every way of running runs twice, in random order: with its delays, and as a control.
"""

import json
import os
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Attribution
from dlobd.bundle.store import Bundle
from dlobd.evidence import log4j
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.rpc import Call, calls
from dlobd.experiment import files, own_job
from dlobd.faults import hooks, injection_log, queue_filler, sigstop, slow_disk
from dlobd.faults.injection_log import Injection
from dlobd.faults.observed_run import DRIVER, SPARK_SUBMIT, Fault, Moment, ObservedRun, armed
from dlobd.faults.targets import daemons_of
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.paths import shipped
from dlobd.record.run import Run
from dlobd.run import runner, submitted_process
from dlobd.run.observer import RunObserver
from dlobd.run.place import embedded
from dlobd.run.run_record import SetupTimes
from dlobd.run.schedulers.base import Command
from dlobd.schema import Runnable
from dlobd.selftest import score
from dlobd.selftest.injection_points import DISK, POINTS, QUEUE, Point
from dlobd.selftest.score import Recovery
from dlobd.timeline.assemble import assemble

EXPERIMENT = "softmax-mnist-quick"
SIZES_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Durations of the delays: one per block and point. A 95 % confidence interval needs six blocks."""

REPEATS = 2
"""Maximum number of repetitions of a run with hidden or missing delays."""

_CLIENT_LOG = re.compile(rf"{SPARK_SUBMIT}|{DRIVER}|container-(\d+)")
"""Logs of Spark's JVMs, which contain the calls of Hadoop's RPC client."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of one run: its differences from `EXPERIMENT`, and the delays of each point in seconds, 0 in a control.

    own: True if a script runs as the user's own job, instead of the experiment.
    disk_bytes_per_s: limit of the DataNodes' disk reads; 0 for no limit.
    attempt: number of the repetition; 0 for the first run.
    """

    way: str
    block: int
    settings: tuple[str, ...]
    delays: Mapping[str, Sequence[float]]
    own: bool = False
    disk_bytes_per_s: int = 0
    attempt: int = 0

    @property
    def control(self) -> bool:
        return not any(map(any, self.delays.values())) and not self.disk_bytes_per_s

    @property
    def name(self) -> str:
        """Name that is unique in a self-test."""
        suffix = "-control" if self.control else f"-repeat-{self.attempt}" if self.attempt else ""
        return f"{self.way}-{self.block}{suffix}"

    @property
    def cluster_mode(self) -> bool:
        """True if the driver runs in the ApplicationMaster."""
        return "deploy_mode=cluster" in self.settings

    def repeat(self, points: Collection[str], attempt: int) -> Self:
        """Return the repetition of some points. The user's own job needs all of its points."""
        delays = {point: seconds for point, seconds in self.delays.items() if self.own or point in points}
        return replace(self, delays=delays, disk_bytes_per_s=0, attempt=attempt)


_START = """
    client/exec yarn/new-application yarn/submit yarn/queue yarn/localise yarn/register yarn/request
    yarn/start-executor yarn/localise-executor
    spark/submit-start spark/submit-boot spark/driver-start spark/import-pyspark spark/context spark/env
    spark/scheduler spark/rm-proxy spark/staging spark/prepare spark/am-start spark/am-boot spark/am-name
    spark/am-login spark/am-staging spark/am-connect spark/am-request spark/am-allocator spark/am-launch
    spark/executor-start spark/executor-boot spark/executor-main spark/executor-log4j spark/executor-name
    spark/executor-login spark/executor-settings spark/executor-env spark/executor-register spark/task
    spark/broadcast spark/function spark/python-start hdfs/staging hdfs/upload """
"""Points that every job on YARN passes before the training."""

_BRIEF = """
    client/exec yarn/submit yarn/queue yarn/register spark/submit-start spark/context spark/am-start
    spark/executor-start spark/task spark/python-start hdfs/staging """
"""Selection of the points in `_START`, for ways that start like another way."""

# One rank, except where ranks wait for each other: a second rank could continue, and hide the delay.
_WAYS: Mapping[str, tuple[str, str]] = {
    "feed": (
        "workers=1",
        f"""{_START} hdfs/splits spark/splits launcher/rendezvous spark/slow-task feed/put feed/get tensorflow/import
        tensorflow/first-step tensorflow/step hdfs/write spark/stop hdfs/event-log spark/exit""",
    ),
    "read": (
        "workers=1 input=read",
        f"{_BRIEF} hdfs/read tensorflow/import tensorflow/step hdfs/write spark/stop hdfs/event-log spark/exit",
    ),
    "feed-cluster": (
        "workers=1 deploy_mode=cluster",
        f"""{_START} spark/block-manager spark/splits launcher/rendezvous feed/put feed/get tensorflow/import
        hdfs/write""",
    ),
    "read-cluster": (
        "workers=1 input=read deploy_mode=cluster",
        f"{_BRIEF} hdfs/read tensorflow/import tensorflow/step hdfs/write",
    ),
    "ranks": (
        "launcher=barrier deploy_mode=cluster",
        "yarn/queue spark/block-manager tensorflow/step tensorflow/decode hdfs/write",
    ),
    "channel": ("launcher=barrier exchange=ring", "channel/pack channel/wait channel/wire channel/unpack"),
    "barrier": (
        "launcher=barrier workers=1",
        f"""{_BRIEF} spark/splits launcher/rendezvous spark/open-input spark/slow-task feed/put tensorflow/step
        hdfs/model""",
    ),
}
"""Name of a way -> its settings and points."""

_DISK = ("workers=1", "input=read", "page_cache=cold", "checkpoint_every_steps=1000")
_DISK_BYTES_PER_S = 1_000_000
"""The training data takes a few seconds at this rate, much longer than the training."""


def quick() -> list[Plan]:
    """Return five runs that pass every point of dlobd's own job."""
    ways = ("feed", "read", "ranks", "channel", "barrier")
    return [_plan(name, 2 if name == "feed" else 1, (0.05, 0.5), 0.5) for name in ways]


def full(seed: int = 0, slow_disk: bool = False) -> list[Plan]:
    """Return runs with every point and size, in every way that passes the point, and as many controls.

    `slow_disk`: True if the disk of the DataNodes can be slowed on this machine."""
    plans: list[Plan] = []
    for block, size in enumerate(SIZES_S):
        other = SIZES_S[(block + 1) % len(SIZES_S)]
        # two sizes per run, so that no run takes minutes
        ways = [_plan(name, block, (size, other)) for name in _WAYS]
        delays = {"user/script": [size], "user/import": [size], "user/task": [other]}
        ways.append(Plan("own", block, ("workers=1",), delays, own=True))
        if slow_disk:
            ways.append(Plan("disk", block, _DISK, {}, disk_bytes_per_s=_DISK_BYTES_PER_S))
        order = random.Random(f"{seed} {block}")
        order.shuffle(ways)
        for way in ways:
            none = {point: [0.0] * len(delays) for point, delays in way.delays.items()}
            pair = [way, Plan(way.way, block, way.settings, none, way.own)]
            order.shuffle(pair)
            plans += pair
    return plans


def _plan(way: str, block: int, often: Sequence[float], once: float | None = None) -> Plan:
    settings, points = _WAYS[way]
    delays = {
        point: often if POINTS[point].often else [once or SIZES_S[(block + number) % len(SIZES_S)]]
        for number, point in enumerate(points.split())
    }
    return Plan(way, block, (*settings.split(), "checkpoint_every_steps=1000"), delays)


@dataclass(frozen=True, slots=True)
class SelftestRun:
    """Run of a self-test with its score.

    missing: points at which a planned delay was not injected.
    repeated: points that the next run repeats, because a delay was hidden or missing. They are not scored here.
    """

    plan: Plan
    bundle: Path
    record: Run
    attribution: Attribution
    injected: tuple[Injection, ...]
    recoveries: tuple[Recovery, ...]
    missing: tuple[str, ...]
    repeated: frozenset[str] = frozenset()

    @property
    def scored(self) -> tuple[Recovery, ...]:
        """Delays that no later run repeats."""
        return tuple(recovery for recovery in self.recoveries if recovery.injected.point not in self.repeated)

    @property
    def ok(self) -> bool:
        """True if the run succeeded, and every delay was injected and found."""
        sound = self.record.status == "ok" and self.repeated.issuperset(self.missing)
        return sound and all(recovery.ok for recovery in self.scored)

    @property
    def repeatable(self) -> frozenset[str]:
        """Points to repeat. A control, a failed run and a wrong breakdown are not repeated."""
        verdicts = {recovery.injected.point: recovery.verdict for recovery in self.recoveries if not recovery.ok}
        if self.plan.control or self.record.status != "ok" or "wrong" in verdicts.values():
            return frozenset()
        return frozenset((*verdicts, *self.missing))


def run(
    plans: Sequence[Plan], out: Path, progress: Callable[[str], None], report: Callable[[str], None]
) -> list[SelftestRun]:
    """Run all plans, and repeat hidden delays. `report` gets one line per run. The bundles go to `out`, and the
    injection logs to out/injected/<run ID>. Raises the errors of `dlobd.run.runner.run`."""
    done: list[SelftestRun] = []
    with embedded.cluster(SetupTimes(), progress) as cluster:
        if any(plan.control for plan in plans):
            # the first run of a cluster is slower by seconds, which would bias the comparison with its control
            warm_up = runner.run(files.load(EXPERIMENT, ["workers=1"]), out, progress, cluster)
            report(f"warm-up run, not scored: {Bundle(warm_up).read().status}")
        for number, plan in enumerate(plans, 1):
            for each in attempts(plan, lambda plan: _execute(plan, out, progress, cluster)):
                done.append(each)
                report(f"run {number} of {len(plans)}: {_summary(each)}")
    return done


def attempts(plan: Plan, execute: Callable[[Plan], SelftestRun]) -> Iterator[SelftestRun]:
    """Execute a plan, and repeat its hidden and missing delays at most `REPEATS` times."""
    for number in range(REPEATS + 1):
        ran = execute(plan)
        points = ran.repeatable if number < REPEATS else frozenset()
        yield replace(ran, repeated=points)
        if not points:
            return
        plan = plan.repeat(points, number + 1)


def _execute(plan: Plan, out: Path, progress: Callable[[str], None], cluster: EmbeddedCluster) -> SelftestRun:
    directory = (out / "injected" / f"{plan.name}-{os.getpid()}").resolve()
    directory.mkdir(parents=True)
    (directory / "plan.json").write_text(json.dumps({point: list(s) for point, s in plan.delays.items()}))
    (directory / "sitecustomize.py").write_text(hooks.sitecustomize(directory))
    job: Runnable = files.load(EXPERIMENT, list(plan.settings))
    if plan.own:
        job = own_job.from_script(str(shipped("jobs") / "selftest.py"), [str(directory)], plan.settings)
    disk: AbstractContextManager[None] = nullcontext()
    if plan.disk_bytes_per_s:
        blocks = sorted(cluster.work_dir.glob("datanode-*/**/finalized/**/blk_*"))
        disk = slow_disk.slowed(DISK, daemons_of(cluster, "datanode"), blocks, plan.disk_bytes_per_s, directory)
    with _faults(plan, cluster, directory) as observed, _slow_exec(plan.delays, directory), disk:
        path = runner.run(job, out, progress, cluster, _Hooked(observed.began, directory))
    return score_run(plan, path, directory.rename(directory.parent / path.name))


def score_run(plan: Plan, bundle: Path, directory: Path) -> SelftestRun:
    """Compare the breakdown of a run with its injection log."""
    injected = injection_log.read(directory)
    attribution = attribute(assemble(Evidence(bundle)))
    recoveries = tuple(
        score.blame(injection, attribution, bundle.name, rpc_calls(plan, bundle, POINTS[injection.point]))
        for injection in injected
        if injection.asked_ns and not POINTS[injection.point].whole_run
    )
    missing = tuple(score.missing(plan.delays, injected))
    return SelftestRun(plan, bundle, Bundle(bundle).read(), attribution, tuple(injected), recoveries, missing)


def rpc_calls(plan: Plan, bundle: Path, point: Point) -> list[Call] | None:
    """Return the RPC calls in the log that triggers a point; None if this log has no RPC calls."""
    log = _CLIENT_LOG.fullmatch(point.stop.trigger.log) if point.stop else None
    if log is None or point.layer not in ("yarn", "hdfs", "spark"):
        return None
    number = log[1] or ("1" if log[0] == DRIVER and plan.cluster_mode else "")
    evidence = Evidence(bundle)
    own = [evidence.log_of(name) for name in evidence.containers if number and name.endswith(f"_{int(number):06}")]
    names = own if number else [evidence.submitter_log]
    return [call for name in names for call in calls(log4j.read(bundle / name))]


@contextmanager
def _faults(plan: Plan, cluster: EmbeddedCluster, directory: Path) -> Iterator[ObservedRun]:
    """Inject the delays that come from outside the job's processes. Raises ClusterError if the queue stays free."""
    with ExitStack() as stack:
        run = ObservedRun(cluster, directory, plan.cluster_mode)
        faults = [_stop(point, seconds[0]) for point, seconds in plan.delays.items() if POINTS[point].stop]
        if seconds := plan.delays.get(QUEUE):
            filler = stack.enter_context(queue_filler.filled(cluster))
            run.other = filler.application_id.removeprefix("application")

            def release(run: ObservedRun, moment: Moment) -> None:
                injection_log.inject(run.directory, QUEUE, seconds[0])
                filler.release()

            faults.append(Fault(QUEUE, queue_filler.ACCEPTED, release))
        stack.enter_context(armed(run, faults))
        yield run


def _stop(point: str, seconds: float) -> Fault:
    stop = POINTS[point].stop
    assert stop

    def inject(run: ObservedRun, moment: Moment) -> None:
        sigstop.stop(point, lambda: stop.targets(run, moment), seconds, run.directory, run.over, stop.within_s)

    return Fault(point, stop.trigger, inject)


class _Hooked(RunObserver):
    """Observer that starts each Python process below spark-submit with the hooks. Spark passes PYTHONPATH on."""

    def __init__(self, began: Callable[[Bundle], None], directory: Path) -> None:
        self._began = began
        self._path = os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH")]))

    def created(self, bundle: Bundle) -> None:
        self._began(bundle)

    def submitting(self, command: Command) -> Command:
        return replace(command, environment={**command.environment, "PYTHONPATH": self._path})


@contextmanager
def _slow_exec(plan: Mapping[str, Sequence[float]], directory: Path) -> Iterator[None]:
    """Delay the child process before it becomes spark-submit."""
    original = submitted_process.before_exec

    def late() -> None:
        original()
        injection_log.inject(directory, "client/exec", plan["client/exec"][0])

    if plan.get("client/exec"):
        submitted_process.before_exec = late
    try:
        yield
    finally:
        submitted_process.before_exec = original


def _summary(ran: SelftestRun) -> str:
    right = sum(recovery.ok for recovery in ran.recoveries)
    content = "a control" if ran.plan.control else "a slow disk"
    if ran.recoveries:
        content = f"{right} of {len(ran.recoveries)} delays in the right layer"
    again = f"; to be repeated: {', '.join(sorted(ran.repeated))}" if ran.repeated else ""
    missing = f"; not injected: {', '.join(ran.missing)}" if ran.missing else ""
    reason = f" ({ran.record.reason})" if ran.record.reason else ""
    return f"{ran.plan.name} {ran.record.status}{reason}, {content}{missing}{again}"
