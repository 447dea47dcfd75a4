"""A run, from an experiment to a bundle. The data flow of dlobd on one page.

    prepare   embedded cluster up (or the one that stays), data set in HDFS, a new bundle
    submit    spark-submit, watched from exec to exit: the window
    collect   logs, spans, records of the cluster -> bundle
    import    evidence -> trace -> attribution
    check     is the result one that may be believed?
    store     run.json, hashes

The steps hand each other nothing but files in the bundle, so that everything after `collect` can be repeated on any
machine, without a cluster (`dlobd.record.fill`).
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dlobd import environment, record, staging, store, submit
from dlobd.clean import cluster_dir
from dlobd.cluster.configuration import LOOPBACK, ClusterSettings, default_settings
from dlobd.cluster.embedded import EmbeddedCluster
from dlobd.cluster.standalone import SparkWorkers, links_home, spark_home_in
from dlobd.cluster.startup import available_memory_bytes
from dlobd.errors import ClusterError, DlobdError, Interrupted, SetupError
from dlobd.experiment import steps
from dlobd.places import Hadoop, OnSparkWorkers, Place, ThisMachine, native_dir, target_of
from dlobd.registry import LAUNCHERS, SCHEDULERS
from dlobd.schedulers.base import Command, Target
from dlobd.schedulers.spark_submit import environment as spark_environment
from dlobd.schedulers.spark_submit import spark_home
from dlobd.schedulers.yarn import AM_MEMORY_MB, MIN_OVERHEAD_MB, memory_needed_mb
from dlobd.schema import Experiment
from dlobd.shipped import shipped
from dlobd.store import Bundle
from dlobd.workloads.job import Job

Progress = Callable[[str], None]

YARN_STEP_MB = 128
"""Containers are multiples of it: yarn.scheduler.minimum-allocation-mb of yarn/base."""


def plan(experiment: Experiment) -> list[str]:
    """What `run` would do, one line a step, with the exact spark-submit line. Starts nothing.

    What only a running cluster knows stands in angle brackets, unless `dlobd cluster up` runs one.
    """
    source, target = _planned_place(experiment)
    command = _command(experiment, target, Path("<bundle>/evidence"))
    environment_ = [f"{name}={shlex.quote(value)}" for name, value in sorted(command.environment.items())]
    where = f"HDFS {staging.directory(experiment)}" if target else f"{native_dir()}{staging.directory(experiment)}"
    return [
        f"prepare: {source}",
        f"prepare: {experiment.dataset} in {where}",
        f"submit: {' '.join([*environment_, shlex.join(command.argv)])}",
        f"submit: {experiment.workers} ranks, {steps(experiment)} steps, at most {experiment.timeout_s} s",
        f"collect: {_evidence(experiment)}",
        "import: trace and attribution",
        "check: steps, samples, loss, test accuracy",
        "store: run.json and hashes",
    ]


def run(experiment: Experiment, out: Path, progress: Progress) -> Path:
    """Executes one run; returns its bundle, also when the job failed.

    Raises:
        SetupError, ClusterError, Busy: the run could not be submitted; nothing is left behind.
        Interrupted: by Ctrl-C or SIGTERM; the bundle is marked so, and everything that was started is stopped.
    """
    settings = default_settings()
    _check_memory(experiment, settings)
    made = [path for path in (out / experiment.name, out) if not path.exists()]
    bundle = store.create(out, experiment.name)
    run_record = record.begin(bundle, experiment)
    setup: dict[str, int | None] = run_record["setup"]
    try:
        with _place(experiment, settings, setup, progress) as place:
            run_record["versions"] = environment.versions(place.java_version)
            _execute(experiment, place, bundle, run_record, progress)
    except KeyboardInterrupt:
        _interrupted(bundle, run_record)
        raise Interrupted(f"interrupted; what is known is in {bundle.path}.") from None
    except Exception as error:
        if run_record["command"]:
            _broken_off(bundle, run_record, error)
        else:
            _discard(bundle, made)
        raise
    progress(f"store: {record.summary_line(run_record)}")
    _store(bundle, run_record)
    return bundle.path


def _execute(
    experiment: Experiment, place: Place, bundle: Bundle, run_record: dict[str, Any], progress: Progress
) -> None:
    setup = run_record["setup"]
    with _timed(setup, "staging_ns"):
        staged = staging.stage(experiment, place.storage, place.top, lambda m: progress(f"prepare: {m}"))
        job = _job(experiment, place, staged, bundle)
        place.prepare(job.run_dir)
    run_record["metrics"]["staged_bytes"] = 0 if staged.reused else staged.bytes
    bundle.add_bytes(job.to_json().encode(), "evidence/job.json")

    command = _command(experiment, place.target(), bundle.evidence)
    run_record["command"] = list(command.argv)
    run_record["cause"] = record.INTERRUPTED
    bundle.write(run_record)  # what stays if this process is killed
    progress(f"submit: {Path(command.argv[0]).name} starts")
    window = submit.submit(
        command,
        bundle.logs,
        experiment.timeout_s,
        _Narrator(progress),
        place.abort,
    )
    bundle.add_bytes(json.dumps(asdict(window), indent=1).encode(), "evidence/window.json")
    if window.ended_by != "interrupt":
        run_record["cause"] = record.INTERRUPTED_LATE

    progress(f"collect: {_evidence(experiment)}")
    with _timed(setup, "collect_ns"):
        for log in sorted(bundle.logs.glob("driver.*")):
            bundle.add(log, f"logs/{log.name}")  # again, without the secrets that third parties print
        missing, metrics = place.collect(window, job, bundle)
    run_record["metrics"] |= metrics

    progress("import: trace and attribution")
    with _timed(setup, "import_ns"):
        record.fill(run_record, bundle, experiment, missing)
    # from here on the result is safe, whatever happens while the cluster stops
    bundle.write(run_record)
    if window.ended_by == "interrupt":
        raise KeyboardInterrupt


@contextmanager
def _place(
    experiment: Experiment, settings: ClusterSettings, setup: dict[str, int | None], progress: Progress
) -> Iterator[Place]:
    """Where the job runs, started if need be."""
    if experiment.scheduler == "none":
        yield ThisMachine()
        return
    with _cluster(settings, setup, progress) as cluster:
        if experiment.scheduler == "yarn":
            yield Hadoop(cluster)
            return
        home = links_home(spark_home(), cluster.work_dir)
        if experiment.scheduler == "local-cluster":
            yield OnSparkWorkers(cluster, home, "")
            return
        variables = spark_environment(target_of(cluster))
        workers = SparkWorkers(home, cluster.work_dir, variables, experiment.workers, experiment.executor_memory_mb)
        with _timed(setup, "spark_up_ns"):
            master = workers.start(lambda message: progress(f"prepare: {message}"))
        try:
            yield OnSparkWorkers(cluster, home, master)
        finally:
            with _timed(setup, "spark_down_ns"):
                workers.stop()


def _planned_place(experiment: Experiment) -> tuple[str, Target | None]:
    """What would be prepared, in words, and the cluster as far as it is known before it runs."""
    if experiment.scheduler == "none":
        return "nothing runs beside the job's own processes", None
    work_dir = cluster_dir()
    try:
        target = target_of(EmbeddedCluster.attach(work_dir, hold=False))
        words = f"use the cluster that runs in {work_dir}"
    except ClusterError:
        conf = work_dir / "conf"
        target = Target(conf / "client", conf / "spark", Path("<java-home>"), "<fs-uri>", LOOPBACK, work_dir / "tmp")
        words = "start the embedded cluster: 1 NameNode, 2 DataNodes, 1 ResourceManager, 2 NodeManagers"
    if experiment.scheduler == "yarn":
        return words, target
    if experiment.scheduler == "standalone":
        words += ", and Spark's own Master and Workers"
    return words, replace(target, master="<spark-master>", spark_home=spark_home_in(work_dir))


def _evidence(experiment: Experiment) -> str:
    if experiment.scheduler == "none":
        return "logs, spans, markers"
    return "logs, spans, event log" + ", ResourceManager record" * (experiment.scheduler == "yarn")


@contextmanager
def _cluster(settings: ClusterSettings, setup: dict[str, int | None], progress: Progress) -> Iterator[EmbeddedCluster]:
    """The cluster that `dlobd cluster up` left running, or one for this run only."""
    try:
        cluster = EmbeddedCluster.attach(settings.work_dir)
    except ClusterError:
        cluster = EmbeddedCluster(settings)
    else:
        setup["cluster_up_ns"] = None
        progress(f"prepare: uses the cluster that runs in {settings.work_dir}")
        try:
            yield cluster
        finally:
            cluster.release()
        return
    with _timed(setup, "cluster_up_ns"):
        cluster.start(lambda message: progress(f"prepare: {message}"))
    try:
        yield cluster
    finally:
        with _timed(setup, "cluster_down_ns"):
            cluster.stop(lambda message: progress(f"stop: {message}"))


def _command(experiment: Experiment, target: Target | None, evidence: Path) -> Command:
    launcher_conf = LAUNCHERS.get(experiment.launcher)().spark_conf()
    script = shipped("jobs") / "train.py"
    scheduler = SCHEDULERS.get(experiment.scheduler)()
    command: Command = scheduler.command(experiment, target, launcher_conf, evidence, script, evidence / "job.json")
    return command


def _job(experiment: Experiment, place: Place, staged: staging.Staged, bundle: Bundle) -> Job:
    return Job(
        name=experiment.name,
        scheduler=experiment.scheduler,
        deploy_mode=experiment.deploy_mode,
        launcher=experiment.launcher,
        input=experiment.input,
        model=experiment.model,
        workers=experiment.workers,
        epochs=experiment.epochs,
        steps=steps(experiment),
        batch_size=experiment.batch_size,
        learning_rate=experiment.learning_rate,
        checkpoint_every_steps=experiment.checkpoint_every_steps,
        seed=experiment.seed,
        train_dir=staged.train_dir,
        test_path=staged.test_path,
        run_dir=f"{place.top}/dlobd/runs/{bundle.run_id}",
        image_values=staged.image_values,
        classes=staged.classes,
        spans_dir=str(bundle.spans / "driver"),
        **place.job_fields(),
    )


def _check_memory(experiment: Experiment, settings: ClusterSettings) -> None:
    """Said before anything is started, because YARN would only leave the application in ACCEPTED."""
    if experiment.scheduler == "none":
        return  # nobody sets such processes a limit
    if experiment.scheduler == "yarn":
        _check_containers(experiment, settings.nodemanager_memory_mb, len(settings.nodemanager_hosts))
    needed_mb = memory_needed_mb(experiment)
    free_mb = available_memory_bytes() >> 20
    if needed_mb > free_mb:
        raise SetupError(
            f"The job's containers need {needed_mb} MB of memory ({experiment.workers} executors of "
            f"{experiment.executor_memory_mb} + {experiment.executor_overhead_mb} MB, driver, ApplicationMaster); "
            f"{free_mb} MB are available.",
            "free memory, or lower workers, executor_memory_mb or executor_overhead_mb with --set",
        )


def _check_containers(experiment: Experiment, node_mb: int, nodes: int) -> None:
    """Refuses what YARN could never give. A NodeManager's `node_mb` is also the largest container."""

    def rounded(container_mb: int) -> int:
        return -(-container_mb // YARN_STEP_MB) * YARN_STEP_MB

    executor_mb = rounded(experiment.executor_memory_mb + experiment.executor_overhead_mb)
    asked = f"{experiment.executor_memory_mb} + {experiment.executor_overhead_mb} MB"
    remedy = "lower executor_memory_mb or executor_overhead_mb with --set"
    if executor_mb > node_mb:
        raise SetupError(f"An executor needs a container of {asked}, and YARN gives at most {node_mb} MB.", remedy)
    am_mb = rounded(AM_MEMORY_MB + MIN_OVERHEAD_MB)
    room = (node_mb - am_mb) // executor_mb + (nodes - 1) * (node_mb // executor_mb)
    if experiment.workers > room:
        raise SetupError(
            f"{experiment.workers} executors of {asked} do not fit into {nodes} NodeManagers of {node_mb} MB beside "
            f"the ApplicationMaster of {am_mb} MB: there is room for {room}.",
            f"lower workers, or {remedy}",
        )


def _interrupted(bundle: Bundle, run_record: dict[str, Any]) -> None:
    """Ctrl-C may come at any point: the record says at which."""
    if run_record["status"] != "interrupted":  # it was complete
        run_record["cause"] = f"interrupted after the job had ended: it was {run_record['status']}"
        run_record["status"] = "interrupted"
    _store(bundle, run_record)


def _broken_off(bundle: Bundle, run_record: dict[str, Any], error: Exception) -> None:
    """The job was submitted, and then a step of ours failed: what there is of it is kept."""
    if run_record["status"] == "interrupted":  # it was not complete
        what = error.what if isinstance(error, DlobdError) else f"{type(error).__name__}: {error}"
        run_record["status"] = "failed"
        run_record["cause"] = " ".join(f"the run could not be completed: {what}".split())[:300]
    _store(bundle, run_record)


def _store(bundle: Bundle, run_record: dict[str, Any]) -> None:
    bundle.write(run_record)
    bundle.seal()


def _discard(bundle: Bundle, made: Sequence[Path]) -> None:
    """Removes a bundle that holds nothing, and of the directories around it those that were made for it."""
    shutil.rmtree(bundle.path, ignore_errors=True)
    for path in made:
        try:
            path.rmdir()
        except OSError:
            break  # other runs are in it


@contextmanager
def _timed(into: dict[str, int | None], name: str) -> Iterator[None]:
    start_ns = time.monotonic_ns()
    try:
        yield
    finally:
        into[name] = time.monotonic_ns() - start_ns


class _Narrator:
    """Turns lines of the driver's log into what a person wants to hear while waiting."""

    _SAYS = (
        ("Running Spark version", "SparkContext starts"),
        ("Submitting application", "application submitted to the ResourceManager"),
        ("has started running", "ApplicationMaster registered"),
        ("Registered executor", "an executor registered"),
        ("Got job 0 ", "TensorFlowOnSpark starts its nodes"),
        ("Got job 1 ", "Spark feeds; the trainers import TensorFlow, then train"),
        ("Got job 2 ", "trained, saved, evaluated; TensorFlowOnSpark shuts down"),
        ("SparkContext is stopping", "SparkContext stops"),
    )

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, line: str) -> None:
        for mark, saying in self._SAYS:
            if mark in line:
                self._progress(f"submit: {saying}")
