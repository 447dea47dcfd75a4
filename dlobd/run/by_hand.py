"""A run whose spark-submit dlobd does not start: prepared before it, collected after it by the cluster's interfaces.

    prepare   data set, environment and jars in HDFS, a bundle, and the line that submits the job
    collect   logs and records of the application -> the bundle -> trace, attribution, checks

The application carries the run's id as a YARN tag, by which it is found again. Its window is the ResourceManager's:
from the submission that it accepted to the end that it saw.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dlobd import own_file
from dlobd.attribution import record
from dlobd.bundle import files, store
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, ClusterError, UsageError
from dlobd.experiment.files import from_dict
from dlobd.hadoop.failures import failures
from dlobd.hadoop.webhdfs import words
from dlobd.job.description import MODEL_FILE, Job
from dlobd.paths import plain
from dlobd.record.run import Run
from dlobd.run import commands, own_model, provenance, runner, staging, submissions
from dlobd.run import run_record as run_records
from dlobd.run.collect import application
from dlobd.run.collect import external as evidence
from dlobd.run.deploy import external
from dlobd.run.deploy.external import ExternalCluster, RemoteHadoop
from dlobd.run.run_record import RunInProgress
from dlobd.schema import Experiment, OwnJob, Runnable
from dlobd.tracing import clock, names, span_cost
from dlobd.tracing.clock import WallToMonotonic, timed

PREPARED = "prepared to be submitted by hand, and not collected yet"

_APPLICATION = re.compile(r"application_\d+_\d+")
_TAG = re.compile(r"\bdlobd-(\d{8}t\d{6}z-[0-9a-f]{4})\b")


def prepare(chosen: Runnable, cluster: ExternalCluster, out: Path, progress: runner.Progress) -> tuple[Path, str]:
    """Everything of a run but the submission; returns its bundle and the shell's line that submits it.

    Raises:
        UsageError, SetupError, ClusterError: it cannot be prepared; no bundle is left.
    """
    if isinstance(chosen, OwnJob):
        raise UsageError("--by-hand is for dlobd's own experiments.", "omit --by-hand or --job")
    external.check(experiment := chosen)
    if experiment.page_cache != "as-is":
        raise UsageError(
            f"page_cache {experiment.page_cache}: with --by-hand nobody knows when the job begins.",
            "--set page_cache=as-is, or omit --by-hand",
        )
    runner.check(experiment, cluster, progress)
    place = RemoteHadoop.open(cluster, lambda message: progress(f"prepare: {message}"))
    external.check_capacity(experiment, place.web, progress)
    place.upload()
    place = place.with_replication(experiment.replication)
    staged = staging.stage(experiment, place.storage, place.top, lambda message: progress(f"prepare: {message}"))
    bundle = store.create(out, experiment.name)
    job = commands.job_of(experiment, place, staged, bundle)
    try:
        place.prepare(job.run_dir)
        own_model.send(experiment, job, place.storage, bundle)
        place.storage.write(f"{job.run_dir}/experiment.json", json.dumps(asdict(experiment)).encode(), "experiment")
        place.storage.write(f"{job.run_dir}/job.json", job.to_json().encode(), "job")
    except UsageError:  # the file of an own model has changed meanwhile
        runner.discard(bundle, ())
        raise
    except (*failures(), ClusterError) as error:
        runner.discard(bundle, ())
        raise ClusterError(
            f"HDFS refused to create the run's directory {job.run_dir}: {error}", "check your permissions"
        ) from error
    bundle.add_bytes(job.to_json().encode(), files.JOB)
    bundle.add_bytes(json.dumps(span_cost.evidence(bundle.path)).encode(), files.SPAN_COST)
    command = commands.command_of(experiment, place.target(), plain(bundle.path))
    bundle.write(replace(run_records.begin(bundle, experiment), command=tuple(command.argv), reason=PREPARED))
    return bundle.path, logging_line(commands.shell_line(command), bundle.logs)


def logging_line(line: str, logs: Path) -> str:
    """A line for any POSIX shell that runs `line` and exits as it does.

    Its stderr, which names the application, goes to the terminal and into driver.stderr; its stdout into driver.stdout.
    """
    out, err = (shlex.quote(str(logs / name)) for name in ("driver.stdout", "driver.stderr"))
    # a pipe's status is tee's: the line's own takes the way around it, by descriptor 3
    return f"{{ {{ {line} > {out} 3>&-; echo $? >&3; }} 2>&1 | tee {err} >&2; }} 3>&1 | (read code; exit $code)"


def collect_application(ref: str, cluster: ExternalCluster, out: Path, progress: runner.Progress) -> Path:
    """Fills the bundle of an application that has ended, and makes it if it was prepared elsewhere; returns its path.

    Args:
        ref: the application's id, the run's, or `latest` for the last one in `out` that waits for it.

    Raises:
        UsageError: there is no such application, it still runs, or dlobd did not prepare it.
        ClusterError: the cluster does not answer.
    """
    named = ref if _APPLICATION.fullmatch(ref) else None
    run_id = None if named else _run_id(ref, out)
    place = RemoteHadoop.open(cluster, lambda message: progress(f"collect: {message}"))
    application_id = named or _submitted(run_id or "", place.web.rm_url)
    rm_record = place.web.application(application_id)
    _check_ended(application_id, rm_record, place.web.rm_url)
    run_dir = _run_dir(application_id, rm_record, place)
    experiment, job = _read(application_id, place, run_dir)
    bundle = store.at(out, experiment.name, Path(run_dir).name)
    run_record = RunInProgress(_record(bundle, experiment))
    run_record.note(versions=provenance.versions(None, place.hadoop_version))
    bundle.add_bytes(job.to_json().encode(), files.JOB)
    progress(f"collect: {application_id}")
    anchor = clock.anchor()
    at_ns = WallToMonotonic([anchor]).ms
    window = {
        "exec_ns": at_ns(rm_record["startedTime"]),
        "started_ns": at_ns(rm_record["startedTime"]),
        "exit_ns": at_ns(rm_record["finishedTime"]),
        "exit_code": 0 if rm_record.get("finalStatus") == "SUCCEEDED" else 1,
        "pid": 0,
        "application_id": application_id,
        "ended_by": "",
        "anchors": [asdict(anchor)],
        "by_hand": True,
    }
    bundle.add_bytes(json.dumps(window, indent=1).encode(), files.WINDOW)
    missing = [*_driver(bundle, job), *_model(bundle, experiment, place, run_dir)]
    # HDFS's lines of a run in client mode begin when its driver started, which the ResourceManager has not seen
    begin_ms = rm_record["startedTime"] - (0 if job.deploy_mode == "cluster" else external.SLACK_MS)
    home = run_dir.partition("/dlobd/")[0]
    asked = evidence.LogQuery(
        application_id, begin_ms, rm_record["finishedTime"] + external.SLACK_MS, rm_record["user"], home
    )
    with timed(run_record.setup, "collect_ns"):
        missing += place.gather(asked, job.train_dir, run_dir, bundle)
        bundle.note_collected(missing, {})
    progress("import: trace and attribution")
    with timed(run_record.setup, "import_ns"):
        run_record.run = run_record.run.with_computed(record.computed(bundle, experiment))
    run_record.write(bundle)
    bundle.seal()
    return bundle.path


def _run_id(ref: str, out: Path) -> str:
    """The id of the run that `ref` means."""
    if store.RUN_ID.fullmatch(ref):
        return ref  # it may have been prepared on another machine
    if ref != store.LATEST:
        raise UsageError(
            f"{ref!r} is neither a YARN application id nor a run id.",
            "dlobd collect application_N_N, or the run's id, or latest",
        )
    waiting = [bundle.run_id for bundle in store.bundles(out) if _waits(bundle)]
    if not waiting:
        raise UsageError(
            f"No run in {out} is waiting to be collected.",
            "name the run or the application, or set --out to the directory of its bundle",
        )
    return waiting[-1]


def _waits(bundle: Bundle) -> bool:
    try:
        return bundle.read().reason == PREPARED
    except BundleError:
        return False


def _submitted(run_id: str, rm_url: str) -> str:
    """The id of the one application of a run that was submitted by hand."""
    found = [record["id"] for record in submissions.applications(rm_url, submissions.tag_of(run_id)) or []]
    if len(found) == 1:
        return str(found[0])
    if found:
        raise UsageError(
            f"The command of run {run_id} was submitted {len(found)} times: {', '.join(found)}.", "name one of them"
        )
    raise UsageError(
        f"The ResourceManager at {rm_url} knows no application of run {run_id}.",
        "submit the command that dlobd run --by-hand printed, then collect again",
    )


def _check_ended(application_id: str, rm_record: dict[str, Any], rm_url: str) -> None:
    if not rm_record:
        raise UsageError(
            f"The ResourceManager at {rm_url} knows no {application_id}.",
            "see its /cluster/apps page; it keeps yarn.resourcemanager.max-completed-applications of them",
        )
    if rm_record.get("state") not in application.ENDED:
        raise UsageError(f"{application_id} is {rm_record.get('state')}.", "collect it when it has ended")


def _run_dir(application_id: str, rm_record: dict[str, Any], place: RemoteHadoop) -> str:
    """The run's directory in HDFS, by the application's tag."""
    tag = _TAG.search(rm_record.get("applicationTags", ""))
    if tag is None:
        raise UsageError(
            f"{application_id} has no dlobd tag, so its run is unknown.",
            "prepare it with dlobd run EXPERIMENT --hadoop-conf DIR --by-hand, and submit the command that it prints",
        )
    home = place.top if rm_record["user"] == place.web.user else f"{Path(place.top).parent}/{rm_record['user']}"
    # YARN writes tags in small letters
    return f"{home}/dlobd/runs/{tag[1][:16].upper()}{tag[1][16:]}"


def _read(application_id: str, place: RemoteHadoop, run_dir: str) -> tuple[Experiment, Job]:
    """What was to be run, as it was prepared."""
    try:
        experiment = json.loads(place.storage.read(f"{run_dir}/experiment.json", "experiment"))
        return from_dict(experiment, run_dir), Job.from_dict(
            json.loads(place.storage.read(f"{run_dir}/job.json", "job"))
        )
    except (*failures(), ValueError, TypeError) as error:
        why = " ".join(str(error).split())[:200]
        raise UsageError(
            f"{application_id} cannot be collected: its description is missing from {run_dir} ({why}).",
            "prepare it with dlobd run EXPERIMENT --hadoop-conf DIR --by-hand",
        ) from error


def _record(bundle: Bundle, experiment: Experiment) -> Run:
    """Returns the record that `prepare` began, or a new one if that was on another machine."""
    begun = run_records.begin(bundle, experiment)
    try:
        return replace(bundle.read(), setup={}) if (bundle.path / "run.json").exists() else begun
    except BundleError:
        return begun


def _model(bundle: Bundle, experiment: Experiment, place: RemoteHadoop, run_dir: str) -> list[str]:
    """The file of an own model, as the ranks read it, where the run was prepared on another machine."""
    if own_file.named(experiment.model) is None or (bundle.path / files.MODEL).exists():
        return []
    try:
        bundle.add_bytes(place.storage.read(f"{run_dir}/{MODEL_FILE}", names.MODEL_FILE), files.MODEL)
    except failures() as error:
        return [f"model: {words(error)}"]
    return []


def _driver(bundle: Bundle, job: Job) -> list[str]:
    """The driver's own files, which no cluster has where it ran beside spark-submit."""
    bundle.redact_driver_logs()
    if job.deploy_mode == "cluster":
        return []
    missing = []
    if not (bundle.logs / "driver.stderr").exists():
        missing.append("driver log: not here; redirect spark-submit's stderr as in the line of --by-hand")
    if not list(bundle.spans.glob("driver/spans-*")):
        missing.append(f"driver spans: not here; copy {job.spans_dir} of the machine that ran spark-submit to spans/")
    return missing
