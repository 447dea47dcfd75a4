"""The runs of a self-test: each plan once, on one embedded cluster, and what was found in each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from dlobd.attribution.attribute import attribute
from dlobd.attribution.lanes.assemble import assemble
from dlobd.bundle.store import Bundle
from dlobd.experiment import files, own_job
from dlobd.hadoop.embedded.cluster import EmbeddedCluster
from dlobd.hadoop.embedded.configuration import default_settings
from dlobd.paths import shipped
from dlobd.record.run import Run
from dlobd.run import runner, submit
from dlobd.run.deploy import embedded
from dlobd.run.schedulers.base import Command
from dlobd.schema import Attribution, Runnable
from dlobd.selftest import freezer, hooks, score, slow_disk, truth
from dlobd.selftest.plans import EXPERIMENT, Plan
from dlobd.selftest.points import POINTS
from dlobd.selftest.score import Recovery
from dlobd.selftest.triggers import daemons_of
from dlobd.selftest.truth import Injection

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SelftestRun:
    """One run of a self-test and its run.json. `missing` are points at which a planned delay was not made."""

    plan: Plan
    bundle: Path
    record: Run
    attribution: Attribution
    injected: tuple[Injection, ...]
    found: tuple[Recovery, ...]
    missing: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the run was sound, and every delay was made and found."""
        return self.record.status == "ok" and not self.missing and all(found.ok for found in self.found)


def run(plans: Sequence[Plan], out: Path, progress: Progress, told: Progress) -> list[SelftestRun]:
    """Runs all plans.

    Args:
        out: for bundles; what was injected is beside them, in injected/<run id>.
        told: gets one line per run that has ended.

    Raises:
        SetupError, ClusterError, Busy, Interrupted: as `dlobd.run.runner.run`.
    """
    done: list[SelftestRun] = []
    with embedded.cluster(default_settings(), {}, progress) as cluster:
        if any(plan.control for plan in plans):
            _warm_up(out, progress, told, cluster)
        for plan in plans:
            directory = (out / "injected" / f"{plan.name}-{os.getpid()}").resolve()
            directory.mkdir(parents=True)
            (directory / "plan.json").write_text(json.dumps({point: list(s) for point, s in plan.delays.items()}))
            (directory / "sitecustomize.py").write_text(hooks.sitecustomize(directory))
            chosen = _chosen(plan, directory)
            watching = freezer.watching(cluster, plan.cluster_mode, plan.delays, directory)
            with watching as watched, _slow_exec(plan.delays, directory), _slow_disk(plan, cluster, directory):
                path = runner.run(chosen, out, progress, cluster, watched.began, _hooked_in(directory))
            done.append(look(plan, path, directory.rename(directory.parent / path.name)))
            told(_line(len(done), len(plans), done[-1]))
    return done


def _warm_up(out: Path, progress: Progress, told: Progress, cluster: EmbeddedCluster) -> None:
    """A run that is not scored: the first one of a cluster is slower by seconds, which its pair would not have."""
    path = runner.run(files.load(EXPERIMENT, ["workers=1"]), out, progress, cluster)
    told(f"a run to warm up, not scored: {Bundle(path).read().status}")


def _chosen(plan: Plan, directory: Path) -> Runnable:
    if plan.own:
        return own_job.from_script(str(shipped("jobs") / "selftest.py"), [str(directory)], plan.settings)
    return files.load(EXPERIMENT, list(plan.settings))


def look(plan: Plan, bundle: Path, directory: Path) -> SelftestRun:
    """What attribution made of the delays of one run."""
    record = Bundle(bundle).read()
    injected = truth.read(directory)
    attribution = attribute(assemble(bundle))
    intervals = [one for one in injected if one.asked_ns and not POINTS[one.point].whole_run]
    found = tuple(score.blame(one, attribution, bundle.name) for one in intervals)
    missing = tuple(score.missing(plan.delays, injected))
    return SelftestRun(plan, bundle, record, attribution, tuple(injected), found, missing)


def _slow_disk(plan: Plan, cluster: EmbeddedCluster, directory: Path) -> AbstractContextManager[None]:
    if not plan.disk_bytes_per_s:
        return nullcontext()
    blocks = sorted(cluster.work_dir.glob("datanode-*/**/finalized/**/blk_*"))
    return slow_disk.slowed(daemons_of(cluster, "datanode"), blocks, plan.disk_bytes_per_s, directory)


def _hooked_in(directory: Path) -> Callable[[Command], Command]:
    """Every Python below spark-submit begins with the hooks; Spark hands PYTHONPATH on to its containers."""
    path = os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH")]))

    def hooked(command: Command) -> Command:
        return replace(command, environment={**command.environment, "PYTHONPATH": path})

    return hooked


@contextmanager
def _slow_exec(plan: Mapping[str, Sequence[float]], directory: Path) -> Iterator[None]:
    """Lets the child that becomes spark-submit wait before it does."""
    original = submit.before_exec

    def late() -> None:
        original()
        truth.inject(directory, "client/exec", plan["client/exec"][0])

    if plan.get("client/exec"):
        submit.before_exec = late
    try:
        yield
    finally:
        submit.before_exec = original


def _line(number: int, of: int, ran: SelftestRun) -> str:
    right = sum(found.ok for found in ran.found)
    what = (
        f"{right} of {len(ran.found)} delays in the right layer"
        if ran.found
        else "a control"
        if ran.plan.control
        else "a slow disk"
    )
    more = f"; not made: {', '.join(ran.missing)}" if ran.missing else ""
    why = f" ({ran.record.reason})" if ran.record.reason else ""
    return f"run {number} of {of}: {ran.plan.name} {ran.record.status}{why}, {what}{more}"
