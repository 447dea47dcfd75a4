"""A run, from an experiment to a bundle: the data flow of dlobd on one page.

    prepare   start the embedded cluster (or use a running one), stage the data set, create a bundle
    submit    run spark-submit and observe it from exec to exit: the window
    collect   copy logs, spans and records of the cluster into the bundle
    import    evidence -> trace -> attribution
    check     verify the result
    store     write run.json and the hashes

The steps exchange only files in the bundle, so that all steps after `collect` can be repeated on any machine without a
cluster (`dlobd.recompute.computed.computed`).
"""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from dlobd import spans as kinds
from dlobd import tracing
from dlobd.bundle import files, reading, store
from dlobd.bundle.redaction import redact_words
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError, DlobdError, Interrupted, SetupError
from dlobd.experiment import user_config
from dlobd.experiment.files import batches
from dlobd.hadoop.embedded.configuration import default_settings
from dlobd.hadoop.failures import failures
from dlobd.hadoop.webhdfs import words
from dlobd.job.datasets.base import dataset_of
from dlobd.job.description import Job
from dlobd.paths import native_dir, plain, using_cache
from dlobd.recompute import computed as record
from dlobd.recompute.limits import LimitExceeded, limited_time
from dlobd.run import (
    generation,
    machine_noise,
    orphans,
    overlay,
    own_model,
    page_cache,
    provenance,
    resource_sampler,
    staging,
    submitted_process,
)
from dlobd.run import run_record as run_records
from dlobd.run.observer import Report, RunObserver, prefixed
from dlobd.run.overlay import JobPython
from dlobd.run.place.base import Lent, Metrics, Place, kind_of
from dlobd.run.preflight import capacity
from dlobd.run.progress import Narrator
from dlobd.run.run_record import RunInProgress
from dlobd.run.submit_command import command_of, job_of, shell_line
from dlobd.run.submitted_process import Window
from dlobd.schema import Experiment, OwnJob, Runnable
from dlobd.tracing import span_cost
from dlobd.trust import reasons

_COLLECT_CPU_S = 1800.0
"""Limit of CPU time for the collection; requests have their own timeouts. Its memory does not depend on file sizes."""

_SAMPLER_MARGIN_S = 300.0
"""Time beyond the job's own timeout after which the sampler ends by itself. dlobd stops the sampler long before."""


def plan(experiment: Runnable, lent: Lent = None) -> list[str]:
    """Return the steps of `run`, one line per step, with the exact spark-submit line. Starts nothing.

    Facts of a running cluster are in angle brackets, unless a cluster of `dlobd cluster up` is running.
    Raises UsageError or SetupError if the run would be refused, here or because of its packages.
    """
    check(experiment, lent)
    kind = kind_of(experiment, lent)
    source, target = kind.planned(experiment, lent)
    packages = overlay.requirements(experiment)
    overlay.prepared(experiment, lambda line: None, install=False)
    modules, archive = (Path("<packages>"), "" if kind.here else "<packages>") if packages else (None, "")
    command = command_of(experiment, target, Path("<bundle>"), modules, archive)
    if isinstance(experiment, OwnJob):
        staged = [f"prepare: install {' '.join(packages)}, once"] if packages else []
        what, checks = f"{experiment.workers} executors", "exit code, evidence"
    else:
        directory = staging.directory(experiment)
        staged = [f"prepare: {experiment.dataset} in {f'HDFS {directory}' if target else f'{native_dir()}{directory}'}"]
        what = f"{experiment.workers} ranks, {batches(experiment)}, {_steps(experiment)}"
        checks = "steps, samples, loss, test accuracy"
    return [
        f"prepare: {source}",
        *staged,
        "submit: " + shell_line(command, " \\\n    "),
        f"submit: {what}, at most {experiment.timeout_s} s",
        f"collect: {kind.collects}",
        "import: trace and attribution",
        f"check: {checks}",
        "store: run.json and hashes",
    ]


def check(experiment: Runnable, lent: Lent = None, report: Report | None = None) -> None:
    """Check the requirements of a run as far as possible before anything is started. Raises UsageError if the user's
    model or data set does not work, SetupError if a data set, a device, memory or cores are missing."""
    if not isinstance(experiment, OwnJob):
        dataset_of(experiment)
        own_model.check(experiment, prefixed(report, "prepare") if report else None)
    check_room(experiment, lent)


def check_room(experiment: Runnable, lent: Lent = None) -> None:
    """Check memory and devices of this machine for a run that takes place here. Raises SetupError."""
    if kind_of(experiment, lent).here:  # the memory of another cluster is unknown
        capacity.check_gpus(experiment)
        capacity.check_memory(experiment, default_settings())


def _steps(experiment: Experiment) -> str:
    """Describe the maximum number of steps, and the limits that may end training earlier."""
    limits = [f"{experiment.most_steps} steps"]
    if experiment.max_seconds:
        limits.append(f"{experiment.max_seconds} s")
    if experiment.target_accuracy:
        limits.append(f"accuracy {experiment.target_accuracy:g}")
    return " or ".join(limits)


@dataclass(frozen=True, slots=True)
class _Run:
    """State of a run that its steps share. `record` becomes run.json."""

    experiment: Runnable
    bundle: Bundle
    record: RunInProgress
    report: Report
    observer: RunObserver
    python: JobPython

    def store(self) -> None:
        self.record.write(self.bundle)
        self.bundle.seal()


@using_cache()
def run(
    experiment: Runnable,
    out: Path,
    report: Report,
    lent: Lent = None,
    observer: RunObserver | None = None,
) -> Path:
    """Execute one run; return its bundle, also if the job failed.

    Args:
        lent: the cluster of a series of runs, or an external cluster; if None, the run starts and stops a cluster.

    Raises:
        SetupError, ClusterError, Busy: the run could not be submitted; nothing is left behind.
        Interrupted: by Ctrl-C or SIGTERM; run.json has this status, and all started processes are stopped.
    """
    check(experiment, lent, report)
    python = overlay.prepared(experiment, prefixed(report, "prepare"))
    new = [path for path in (out / experiment.name, out) if not path.exists()]
    bundle = store.create(out, experiment.name)
    run_record = RunInProgress(run_records.begin(bundle, experiment))
    this = _Run(experiment, bundle, run_record, report, observer or RunObserver(), python)
    try:
        run_record.write(bundle)
        this.observer.created(bundle)
        with kind_of(experiment, lent).opened(experiment, lent, run_record.times, report) as place:
            versions = provenance.versions(place.java_version, place.hadoop_version)
            run_record.note(versions=versions | dict(python.versions))
            if place.own_settings:
                run_record.note(platform={**run_record.run.platform, provenance.OWN_SETTINGS: place.own_settings})
            _execute(this, place)
    except KeyboardInterrupt:
        if not _submitted(this):
            discard(bundle, new)
            raise Interrupted("interrupted before the job was submitted; no bundle was kept.") from None
        if run_record.run.status != "interrupted":
            done = run_record.run.status != "running"  # the result was complete
            late = f"interrupted after the job had ended: its status was {run_record.run.status}"
            run_record.note(status="interrupted", reason=late if done else run_record.interruption)
        this.store()
        raise Interrupted(f"interrupted; evidence so far: {bundle.path}") from None
    except Exception as error:
        if _submitted(this):  # its evidence is kept
            if run_record.run.status == "running":  # the result was not complete
                what = error.what if isinstance(error, DlobdError) else f"{type(error).__name__}: {error}"
                run_record.note(status="failed", reason=reasons.one_line(f"the run could not be completed: {what}"))
            this.store()
        else:
            discard(bundle, new)
        raise
    report(f"store: {record.summary_line(run_record.run)}")
    this.store()
    return bundle.path


def _submitted(this: _Run) -> bool:
    """Return True if the job, or a job that generates its data, was submitted."""
    return bool(this.record.run.command) or (this.bundle.path / generation.BELOW).exists()


def _execute(this: _Run, place: Place) -> None:
    experiment, bundle, run_record, report = this.experiment, this.bundle, this.record, this.report
    times = run_record.times
    metrics: dict[str, int | None] = {}
    if isinstance(experiment, OwnJob):
        job = None
        place.prepare("")
        bundle.add_json(run_record.run.configuration, files.JOB)
        bundle.add(Path(experiment.script), files.SCRIPT)
    else:
        with times.measure("staging"):
            large = generation.wanted(experiment)
            make = partial(generation.make, experiment, place, bundle, report) if large else None
            staged, job = prepare_job(experiment, place, bundle, report, make)
        metrics["staged_bytes"] = 0 if staged.reused else staged.bytes

    bundle.add_json(span_cost.evidence(bundle.path), files.SPAN_COST)
    modules = this.python.modules
    archive = place.send(modules) if modules else ""
    command = this.observer.submitting(command_of(experiment, place.target(), plain(bundle.path), modules, archive))
    if job and isinstance(experiment, Experiment):
        with times.measure("page_cache"):
            _prepare_page_cache(experiment, place, job.train_dir, bundle, report)
    run_record.note(command=tuple(redact_words(command.argv)))
    run_record.write(bundle)
    for path, text in command.files.items():
        path.write_text(text)
    with times.measure("noise"):
        _measure_noise(this, place)
    java_home = command.environment.get("JAVA_HOME")
    # an external cluster reads the environment from its own files
    environment = page_cache.environment_parts(Path(java_home) if java_home else None) if place.here else {}
    before = page_cache.environment_residency(environment)
    narrator = Narrator(report, experiment)

    def output(line: str) -> None:
        if not narrator.output(line) and isinstance(experiment, OwnJob):
            this.observer.output(line)

    def interrupted() -> None:
        run_record.note(status="interrupted", reason=run_record.interruption)
        run_record.write(bundle)

    report(f"submit: starting {Path(command.argv[0]).name}")
    with orphans.watched(bundle.run_id, place.rm_url):
        with _sampling(bundle, place, experiment.timeout_s) as unsampled:
            window = submitted_process.submit(
                command,
                bundle.logs,
                experiment.timeout_s,
                experiment.accept_timeout_s,
                narrator,
                place.abort,
                output,
                interrupted,
            )
        bundle.add_json(window, files.WINDOW)
        cached = page_cache.environment_evidence(before, page_cache.environment_residency(environment))
        bundle.add_json(cached, files.ENVIRONMENT_CACHE)
        if window.ended_by != "interrupt":
            run_record.interruption = record.INTERRUPTED_LATE
        report(f"collect: {place.collects}")
        with times.measure("collect"):
            bundle.redact_driver_logs()
            missing, collected = _collect(place, window, job, bundle)
            bundle.compress_spans()
            bundle.note_collected([*unsampled, *missing], metrics | collected)

    compute(experiment, bundle, run_record, report)
    # the result is complete, even if stopping the cluster fails
    run_record.write(bundle)
    if window.ended_by == "interrupt":
        raise KeyboardInterrupt


def prepare_job(
    experiment: Experiment,
    place: Place,
    bundle: Bundle,
    report: Report,
    make: Callable[[str], None] | None = None,
) -> tuple[staging.StagedData, Job]:
    """Stage the data set and write the job's description into the bundle; return both. `make`: see `stage`."""
    staged = staging.stage(experiment, place.storage, place.top, prefixed(report, "prepare"), make)
    job = job_of(experiment, place, staged, bundle)
    place.prepare(job.run_dir)
    own_model.send(experiment, job, place.storage, bundle)
    bundle.add_bytes(job.to_json().encode(), files.JOB)
    return staged, job


def compute(experiment: Runnable, bundle: Bundle, run_record: RunInProgress, report: Report) -> None:
    """Compute the attribution from the bundle's evidence and add it to the record. Without enough memory the run is
    invalid until `dlobd import`."""
    report("import: trace and attribution")
    with run_record.times.measure("import"):
        try:
            run_record.run = run_record.run.with_computed(record.computed(bundle, experiment, forgives=True))
        except (SetupError, MemoryError) as error:
            what = error.what if isinstance(error, SetupError) else "out of memory."
            window = reading.read_json(bundle.path / files.WINDOW, dict[str, object])
            failed = isinstance(window, dict) and (window["exit_code"] or window["ended_by"])
            reason = f"the record was not computed: {what} Next: dlobd import {bundle.run_id}"
            run_record.note(status="failed" if failed else "invalid", reason=reason)


def _collect(place: Place, window: Window, job: Job | None, bundle: Bundle) -> tuple[list[str], Metrics]:
    try:
        with limited_time(_COLLECT_CPU_S):
            return place.collect(window, job, bundle)
    except LimitExceeded as error:
        return [f"collection of the evidence: it needs {error}"], {}


def _sampling(bundle: Bundle, place: Place, timeout_s: float) -> AbstractContextManager[list[str]]:
    if tracing.switched_off():
        return nullcontext([])
    roots = {"dlobd": os.getpid(), **place.daemon_pids()}
    deadline_s = timeout_s + _SAMPLER_MARGIN_S
    assignment = resource_sampler.Assignment(roots, place.machine, deadline_s)
    return resource_sampler.sampling(bundle.path / files.RESOURCES, assignment)


def _measure_noise(this: _Run, place: Place) -> None:
    this.report("prepare: measuring this machine's noise")
    try:
        noise = machine_noise.measure(machine_noise.SHORT)
    except OSError:
        return  # the noise cannot be measured without /proc or loopback
    earlier_ns = machine_noise.earlier_walls_ns(this.bundle, this.record.run.to_json())
    assumed = user_config.read().noise or None
    context = {"machine": place.machine, "earlier_walls_ns": earlier_ns, "assumed": assumed}
    this.bundle.add_json(asdict(noise) | context, files.NOISE)


def _prepare_page_cache(experiment: Experiment, place: Place, train_dir: str, bundle: Bundle, report: Report) -> None:
    """Bring the page cache into the state that the experiment requires. On other machines only reads over WebHDFS can
    warm it, and its state remains unknown. Raises ClusterError if HDFS did not return the files."""
    report(f"prepare: page cache {experiment.page_cache}")
    paths = place.local_files(train_dir)
    if paths is not None:
        bundle.add_json(page_cache.prepared(experiment.page_cache, paths), files.PAGE_CACHE)
    elif experiment.page_cache == "warm":
        try:
            for name in place.storage.sizes(train_dir):
                for _ in place.storage.stream(f"{train_dir}/{name}", page_cache.READ_BYTES, kinds.DATA_SET):
                    pass
        except failures() as error:
            raise ClusterError(f"HDFS did not return {train_dir}: {words(error)}", "--set page_cache=as-is") from error


def discard(bundle: Bundle, new: Sequence[Path]) -> None:
    """Remove an empty bundle, and the new directories around it."""
    shutil.rmtree(bundle.path, ignore_errors=True)
    for path in new:
        try:
            path.rmdir()
        except OSError:
            break  # the directory contains other runs
