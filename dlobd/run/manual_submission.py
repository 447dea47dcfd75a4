"""Run that the user submits by hand: dlobd prepares it, and collects it after its end over the cluster's interfaces.

    prepare   data set, environment and jars in HDFS, a bundle, and the line that submits the job
    collect   logs and records of the application -> the bundle -> trace, attribution, checks

The application carries the run's ID as a YARN tag, by which dlobd finds it. The ResourceManager defines the window,
from the accepted submission to the observed end.
"""

import json
import re
import shlex
from dataclasses import asdict, replace
from pathlib import Path

from dlobd import spans as kinds
from dlobd.bundle import files, store
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, ClusterError, UsageError
from dlobd.experiment.files import from_dict
from dlobd.hadoop.failures import failures
from dlobd.hadoop.web import JsonObject, application_record
from dlobd.hadoop.webhdfs import words
from dlobd.job.description import MODEL_FILE, Job
from dlobd.paths import plain, using_cache
from dlobd.run import orphans, provenance, runner, submit_command
from dlobd.run import run_record as run_records
from dlobd.run.collect import application
from dlobd.run.collect import external as evidence
from dlobd.run.observer import Report, prefixed
from dlobd.run.place import external
from dlobd.run.place.external import ExternalCluster, ExternalHadoop
from dlobd.run.run_record import RunInProgress, SetupTimes
from dlobd.schema import Experiment, OwnJob, Runnable
from dlobd.tracing import clock, span_cost
from dlobd.tracing.clock import WallToMonotonic

PREPARED = "prepared to be submitted by hand, and not collected yet"
"""The `reason` of a run that waits to be collected."""

_APPLICATION = re.compile(r"application_\d+_\d+")
_TAG = re.compile(r"\bdlobd-(\d{8}t\d{6}z-[0-9a-f]{4})\b")


@using_cache()
def prepare(chosen: Runnable, cluster: ExternalCluster, out: Path, report: Report) -> tuple[Path, str]:
    """Prepare a run without submitting it; return its bundle and the shell line that submits it.
    Raises UsageError, SetupError or ClusterError if the run cannot be prepared; no bundle is left."""
    if isinstance(chosen, OwnJob):
        raise UsageError("--by-hand is for dlobd's own experiments.", "omit --by-hand or --job")
    external.check(experiment := chosen)
    if experiment.page_cache != "as-is":
        raise UsageError(
            f"page_cache {experiment.page_cache}: with --by-hand the start of the job is unknown.",
            "--set page_cache=as-is, or omit --by-hand",
        )
    runner.check(experiment, cluster, report)
    with ExternalHadoop.opened(experiment, cluster, SetupTimes(), report) as place:
        bundle = store.create(out, experiment.name)
        try:
            _, job = runner.prepare_job(experiment, place, bundle, report)
            _describe(experiment, job, place)
        except Exception:
            runner.discard(bundle, ())
            raise
    bundle.add_json(span_cost.evidence(bundle.path), files.SPAN_COST)
    command = submit_command.command_of(experiment, place.target(), plain(bundle.path))
    prepared = run_records.begin(bundle, experiment)
    bundle.write(replace(prepared, command=tuple(command.argv), reason=PREPARED, process=None))
    return bundle.path, logging_line(submit_command.shell_line(command), bundle.logs)


def _describe(experiment: Experiment, job: Job, place: ExternalHadoop) -> None:
    """Write experiment and job to the run's directory in HDFS, from which any machine can collect the run."""
    try:
        place.storage.write(f"{job.run_dir}/experiment.json", json.dumps(asdict(experiment)).encode(), "experiment")
        place.storage.write(f"{job.run_dir}/job.json", job.to_json().encode(), "job")
    except failures() as error:
        what = f"HDFS refused to write to {job.run_dir}: {words(error)}"
        raise ClusterError(what, "check your permissions") from error


def logging_line(line: str, logs: Path) -> str:
    """Return a command line for any POSIX shell, which runs `line` and exits with its exit code.

    The stderr of `line`, which names the application, goes to the terminal and into driver.stderr; its stdout goes into
    driver.stdout.
    """
    out, err = (shlex.quote(str(logs / name)) for name in ("driver.stdout", "driver.stderr"))
    # the exit status of a pipe is that of tee, so descriptor 3 carries the status of the line past it
    return f"{{ {{ {line} > {out} 3>&-; echo $? >&3; }} 2>&1 | tee {err} >&2; }} 3>&1 | (read code; exit $code)"


@using_cache()
def collect_application(ref: str, cluster: ExternalCluster, out: Path, report: Report) -> Path:
    """Fill the bundle of an ended application, or create it if another machine prepared the run; return its path.

    `ref` is the ID of the application or of the run, or `latest` for the latest run in `out` that waits for collection.
    Raises UsageError if there is no such application, it still runs, or dlobd did not prepare it, ClusterError if the
    cluster does not answer.
    """
    named = ref if _APPLICATION.fullmatch(ref) else None
    run_id = None if named else _run_id(ref, out)
    place = ExternalHadoop.open(cluster, prefixed(report, "collect"))
    application_id = named or _submitted(run_id or "", place.web.rm_url)
    rm_record = application_record(place.web.rm_url, application_id)
    _check_ended(application_id, rm_record, place.web.rm_url)
    run_dir = _run_dir(application_id, rm_record, place)
    experiment, job = _read(application_id, place, run_dir)
    bundle = store.at(out, experiment.name, Path(run_dir).name)
    try:
        run_record = RunInProgress(bundle.read())
    except BundleError:  # another machine prepared the run
        run_record = RunInProgress(run_records.begin(bundle, experiment))
    run_record.note(versions=provenance.versions(None, place.hadoop_version))
    bundle.add_bytes(job.to_json().encode(), files.JOB)
    report(f"collect: {application_id}")
    bundle.add_json(_window(application_id, rm_record), files.WINDOW)
    missing = [*_driver(bundle, job), *_model(bundle, experiment, place, run_dir)]
    # in client mode the driver's start, and with it HDFS's first lines about the run, precede the submission to YARN
    begin_ms = rm_record["startedTime"] - (0 if job.deploy_mode == "cluster" else external.SLACK_MS)
    home = run_dir.partition("/dlobd/")[0]
    query = evidence.LogQuery(
        (application_id,), begin_ms, rm_record["finishedTime"] + external.SLACK_MS, rm_record["user"], home
    )
    with run_record.times.measure("collect"):
        missing += place.gather(query, job.train_dir, run_dir, bundle)
        bundle.compress_spans()
        bundle.note_collected(missing, {})
    runner.compute(experiment, bundle, run_record, report)
    run_record.write(bundle)
    bundle.seal()
    return bundle.path


def _window(application_id: str, rm_record: JsonObject) -> dict[str, object]:
    anchor = clock.anchor()
    monotonic_ns = WallToMonotonic([anchor]).ms
    return {
        "exec_ns": monotonic_ns(rm_record["startedTime"]),
        "started_ns": monotonic_ns(rm_record["startedTime"]),
        "exit_ns": monotonic_ns(rm_record["finishedTime"]),
        "exit_code": 0 if rm_record.get("finalStatus") == "SUCCEEDED" else 1,
        "pid": 0,
        "application_id": application_id,
        "ended_by": "",
        "anchors": [asdict(anchor)],
        "by_hand": True,
    }


def _run_id(ref: str, out: Path) -> str:
    if store.RUN_ID.fullmatch(ref):
        return ref  # another machine may have prepared the run
    if ref != store.LATEST:
        raise UsageError(
            f"{ref!r} is neither a YARN application ID nor a run ID.",
            "dlobd collect application_N_N, or the run's ID, or latest",
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
        run = bundle.read()
        return run.status == "running" and run.process is None
    except BundleError:
        return False


def _submitted(run_id: str, rm_url: str) -> str:
    ids = [str(record["id"]) for record in orphans.applications(rm_url, orphans.tag_of(run_id)) or []]
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise UsageError(f"Run {run_id} was submitted {len(ids)} times: {', '.join(ids)}.", "name one of them")
    raise UsageError(
        f"The ResourceManager at {rm_url} has no application of run {run_id}.",
        "submit the command that dlobd run --by-hand printed, then collect again",
    )


def _check_ended(application_id: str, rm_record: JsonObject, rm_url: str) -> None:
    if not rm_record:
        raise UsageError(
            f"The ResourceManager at {rm_url} has no record of {application_id}.",
            "see the ResourceManager's /cluster/apps; it lists the latest "
            "yarn.resourcemanager.max-completed-applications applications",
        )
    if rm_record.get("state") not in application.ENDED:
        raise UsageError(f"{application_id} is {rm_record.get('state')}.", "collect it after its end")


def _run_dir(application_id: str, rm_record: JsonObject, place: ExternalHadoop) -> str:
    """Return the run's directory in HDFS, from the application's tag."""
    tag = _TAG.search(rm_record.get("applicationTags", ""))
    if tag is None:
        raise UsageError(
            f"{application_id} has no dlobd tag, so its run is unknown.",
            "prepare it with dlobd run EXPERIMENT --hadoop-conf DIR --by-hand, and submit the command that it prints",
        )
    home = place.top if rm_record["user"] == place.web.user else f"{Path(place.top).parent}/{rm_record['user']}"
    # YARN stores tags in lower case
    return f"{home}/dlobd/runs/{tag[1][:16].upper()}{tag[1][16:]}"


def _read(application_id: str, place: ExternalHadoop, run_dir: str) -> tuple[Experiment, Job]:
    try:
        experiment = json.loads(place.storage.read(f"{run_dir}/experiment.json", "experiment"))
        return from_dict(experiment, run_dir), Job.from_dict(
            json.loads(place.storage.read(f"{run_dir}/job.json", "job"))
        )
    except (*failures(), ValueError, TypeError) as error:
        why = " ".join(str(error).split())[:200]
        raise UsageError(
            f"{application_id} cannot be collected: experiment.json or job.json in {run_dir} is unreadable ({why}).",
            "prepare it with dlobd run EXPERIMENT --hadoop-conf DIR --by-hand",
        ) from error


def _model(bundle: Bundle, experiment: Experiment, place: ExternalHadoop, run_dir: str) -> list[str]:
    """Copy the file of the user's model if another machine prepared the run."""
    if not experiment.model.path or (bundle.path / files.MODEL).exists():
        return []
    try:
        bundle.add_bytes(place.storage.read(f"{run_dir}/{MODEL_FILE}", kinds.MODEL_FILE), files.MODEL)
    except failures() as error:
        return [f"model: {words(error)}"]
    return []


def _driver(bundle: Bundle, job: Job) -> list[str]:
    """Redact the driver's logs; return a line for each missing file of a driver that ran beside spark-submit."""
    bundle.redact_driver_logs()
    if job.deploy_mode == "cluster":
        return []
    missing = []
    if not any((bundle.path / name).exists() for name in (files.DRIVER_LOG, files.DRIVER_STDERR)):
        missing.append(f"driver log: not in the bundle; copy {files.DRIVER_LOG} from the host of spark-submit")
    if not list(bundle.spans.glob("driver/spans-*")):
        missing.append(f"driver spans: not in the bundle; copy {job.spans_dir} from the host of spark-submit to spans/")
    return missing
