"""A run, from an experiment to a bundle. The data flow of dlobd on one page.

    prepare   embedded cluster up (or the one that stays), data set in HDFS, a new bundle
    submit    spark-submit, watched from exec to exit: the window
    collect   logs, spans, records of the cluster -> bundle
    import    evidence -> trace -> attribution
    check     is the result one that may be believed?
    store     run.json, hashes

The steps hand each other nothing but files in the bundle, so that everything after `collect` can be repeated on any
machine, without a cluster (`dlobd.attribution.record.computed`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from dlobd import tracing
from dlobd.attribution import reasons, record
from dlobd.bundle import files, store
from dlobd.bundle.redaction import redact_words
from dlobd.bundle.store import Bundle
from dlobd.errors import ClusterError, DlobdError, Interrupted
from dlobd.experiment.files import most_steps
from dlobd.experiment.training import batches
from dlobd.hadoop.embedded.configuration import default_settings
from dlobd.hadoop.failures import failures
from dlobd.hadoop.webhdfs import words
from dlobd.job.datasets.base import dataset_of
from dlobd.job.description import Job
from dlobd.paths import native_dir, plain
from dlobd.run import (
    devices,
    earlier_runs,
    environment_cache,
    generation,
    machine_noise,
    memory_check,
    own_model,
    page_cache,
    provenance,
    resource_sampler,
    staging,
    submissions,
    submit,
)
from dlobd.run import run_record as run_records
from dlobd.run.commands import command_of, job_of, shell_line
from dlobd.run.deploy import choice
from dlobd.run.deploy.base import Lent, Place, PlaceKind
from dlobd.run.progress import Narrator
from dlobd.run.run_record import RunInProgress
from dlobd.run.schedulers.base import Command
from dlobd.schema import Experiment, OwnJob, Runnable
from dlobd.tracing import names, span_cost
from dlobd.tracing.clock import timed

Progress = Callable[[str], None]

_SAMPLER_MARGIN_S = 300.0
"""Beyond the job's own deadline: for ending it. dlobd stops the sampler long before."""


def plan(experiment: Runnable, lent: Lent = None) -> list[str]:
    """What `run` would do, one line per step, with the exact spark-submit line. Starts nothing.

    What only a running cluster knows stands in angle brackets, unless `dlobd cluster up` runs one.

    Raises:
        UsageError: the experiment cannot run there, or the user's own model or data set does not work.
        SetupError: its device is missing.
    """
    kind = choice.kind_of(experiment, lent)
    if kind.here:
        devices.check_here(experiment)
    source, target = kind.planned(experiment, lent)
    command = command_of(experiment, target, Path("<bundle>"))
    if isinstance(experiment, OwnJob):
        staged = []
        what, checked = f"{experiment.workers} executors", "exit code, evidence"
    else:
        own_model.check(experiment)
        directory = staging.directory(experiment)
        staged = [f"prepare: {experiment.dataset} in {f'HDFS {directory}' if target else f'{native_dir()}{directory}'}"]
        what = f"{experiment.workers} ranks, {batches(experiment)}, {_steps(experiment)}"
        checked = "steps, samples, loss, test accuracy"
    return [
        f"prepare: {source}",
        *staged,
        f"submit: {shell_line(command)}",
        f"submit: {what}, at most {experiment.timeout_s} s",
        f"collect: {kind.evidence}",
        "import: trace and attribution",
        f"check: {checked}",
        "store: run.json and hashes",
    ]


def check(experiment: Runnable, lent: Lent = None, progress: Progress = lambda message: None) -> None:
    """Whether all is there that a run needs, and works, as far as it can be said before anything is started.

    Raises:
        UsageError: the user's own model or data set does not work.
        SetupError: a data set or device is missing, or memory or cores do not suffice.
    """
    if not isinstance(experiment, OwnJob):
        dataset_of(experiment)
        own_model.check(experiment, lambda message: progress(f"prepare: {message}"))
    if choice.kind_of(experiment, lent).here:  # another cluster's memory is unknown
        devices.check_here(experiment)
        memory_check.check_memory(experiment, default_settings())


def _steps(experiment: Experiment) -> str:
    """How many steps it takes at most, and what may end it before."""
    limits = {
        "max_seconds": f"{experiment.max_seconds} s",
        "target_accuracy": f"accuracy {experiment.target_accuracy:g}",
    }
    told = [words for name, words in limits.items() if getattr(experiment, name)]
    return " or ".join([f"{most_steps(experiment)} steps", *told])


def run(
    experiment: Runnable,
    out: Path,
    progress: Progress,
    lent: Lent = None,
    began: Callable[[Bundle], None] = lambda bundle: None,
    changed: Callable[[Command], Command] = lambda command: command,
) -> Path:
    """Executes one run; returns its bundle, also when the job failed.

    Args:
        lent: the cluster of a series of runs, or an external one; without it what the run needs is started and stopped.
        began: is told each bundle before anything is started.
        changed: gets the command that submits, and returns the one to be used: for runs with delays put into them.

    Raises:
        SetupError, ClusterError, Busy: the run could not be submitted; nothing is left behind.
        Interrupted: by Ctrl-C or SIGTERM; the bundle is marked so, and everything that was started is stopped.
    """
    check(experiment, lent, progress)
    settings = default_settings()
    kind = choice.kind_of(experiment, lent)
    made = [path for path in (out / experiment.name, out) if not path.exists()]
    bundle = store.create(out, experiment.name)
    run_record = RunInProgress(run_records.begin(bundle, experiment))
    try:
        began(bundle)
        with kind.opened(experiment, settings, lent, run_record.setup, progress) as place:
            run_record.note(versions=provenance.versions(place.java_version, place.hadoop_version))
            if place.own_settings:
                run_record.note(platform={**run_record.run.platform, provenance.OWN_SETTINGS: place.own_settings})
            _execute(experiment, kind, place, bundle, run_record, progress, changed)
    except KeyboardInterrupt:
        _interrupted(bundle, run_record)
        raise Interrupted(f"interrupted; the evidence so far is in {bundle.path}.") from None
    except Exception as error:
        if run_record.run.command or (bundle.path / generation.BELOW).exists():
            _broken_off(bundle, run_record, error)
        else:
            discard(bundle, made)
        raise
    progress(f"store: {record.summary_line(run_record.run)}")
    _store(bundle, run_record)
    return bundle.path


def _execute(
    experiment: Runnable,
    kind: PlaceKind,
    place: Place,
    bundle: Bundle,
    run_record: RunInProgress,
    progress: Progress,
    changed: Callable[[Command], Command],
) -> None:
    setup = run_record.setup
    noted: dict[str, Any] = {}
    if isinstance(experiment, OwnJob):
        job = None
        place.prepare("")
        bundle.add_bytes(json.dumps(asdict(run_record.run.configuration), indent=1).encode(), files.JOB)
        bundle.add(Path(experiment.script), files.SCRIPT)
    else:
        with timed(setup, "staging_ns"):
            make = (
                partial(generation.make, experiment, place, bundle, progress) if generation.wanted(experiment) else None
            )
            staged = staging.stage(experiment, place.storage, place.top, lambda m: progress(f"prepare: {m}"), make)
            job = job_of(experiment, place, staged, bundle)
            place.prepare(job.run_dir)
            own_model.send(experiment, job, place.storage, bundle)
        noted["staged_bytes"] = 0 if staged.reused else staged.bytes
        bundle.add_bytes(job.to_json().encode(), files.JOB)

    bundle.add_bytes(json.dumps(span_cost.evidence(bundle.path)).encode(), files.SPAN_COST)
    command = changed(command_of(experiment, place.target(), plain(bundle.path)))
    if job and isinstance(experiment, Experiment):
        with timed(setup, "page_cache_ns"):
            _prepare_page_cache(experiment, place, job.train_dir, bundle, progress)
    run_record.note(command=tuple(redact_words(command.argv)), reason=record.INTERRUPTED)
    run_record.write(bundle)  # remains if this process is killed
    with timed(setup, "noise_ns"):
        _note_noise(bundle, run_record, place, progress)
    environment = _environment(kind, command)
    before = environment_cache.look(environment)
    progress(f"submit: starting {Path(command.argv[0]).name}")
    with submissions.watched(bundle.run_id, place.rm_url):
        with _sampling(bundle, place, experiment.timeout_s) as unsampled:
            window = submit.submit(
                command,
                bundle.logs,
                experiment.timeout_s,
                experiment.accept_timeout_s,
                Narrator(progress, experiment.launcher, job.input if job else None),
                place.abort,
            )
        bundle.add_bytes(json.dumps(asdict(window), indent=1).encode(), files.WINDOW)
        seen = environment_cache.joined(before, environment_cache.look(environment))
        bundle.add_bytes(json.dumps(seen).encode(), files.ENVIRONMENT_CACHE)
        if window.ended_by != "interrupt":
            run_record.note(reason=record.INTERRUPTED_LATE)
        progress(f"collect: {kind.evidence}")
        with timed(setup, "collect_ns"):
            _collect(place, window, job, bundle, noted, unsampled)

    progress("import: trace and attribution")
    with timed(setup, "import_ns"):
        run_record.run = run_record.run.with_computed(record.computed(bundle, experiment))
    # from here on the result is safe, whatever happens while the cluster stops
    run_record.write(bundle)
    if window.ended_by == "interrupt":
        raise KeyboardInterrupt


def _environment(kind: PlaceKind, command: Command) -> environment_cache.Parts:
    """The files of the job's environment; none where other machines have their own."""
    java_home = command.environment.get("JAVA_HOME")
    return environment_cache.parts(Path(java_home) if java_home else None) if kind.here else {}


def _sampling(bundle: Bundle, place: Place, timeout_s: float) -> AbstractContextManager[list[str]]:
    """Samples resource use for as long as the job runs, unless nothing is to be recorded."""
    if tracing.switched_off():
        return nullcontext([])
    roots = {"dlobd": os.getpid(), **place.daemon_pids()}
    deadline_s = timeout_s + _SAMPLER_MARGIN_S
    assignment = resource_sampler.Assignment(roots, place.machine, deadline_s)
    return resource_sampler.sampling(bundle.path / files.RESOURCES, assignment)


def _collect(
    place: Place,
    window: submit.Window,
    job: Job | None,
    bundle: Bundle,
    noted: dict[str, Any],
    unsampled: list[str],
) -> None:
    bundle.redact_driver_logs()
    missing, metrics = place.collect(window, job, bundle)
    missing = [*unsampled, *missing]
    bundle.note_collected(missing, noted | metrics)


def _note_noise(bundle: Bundle, run_record: RunInProgress, place: Place, progress: Progress) -> None:
    """The noise of the machine just before the window, and how long earlier runs took; without /proc or loopback there
    is none."""
    progress("prepare: measuring this machine's noise")
    try:
        found = machine_noise.measure(machine_noise.SHORT)
    except OSError:
        return
    known = {"machine": place.machine, "earlier_walls_ns": earlier_runs.walls_ns(bundle, run_record.run.to_json())}
    bundle.add_bytes(json.dumps(asdict(found) | known, indent=1).encode(), files.NOISE)


def _prepare_page_cache(
    experiment: Experiment, place: Place, train_dir: str, bundle: Bundle, progress: Progress
) -> None:
    """The page cache as the experiment wants it, before the window. Of other machines only WebHDFS's reads can warm it,
    and nobody says what is there.

    Raises:
        ClusterError: HDFS did not give the files.
    """
    progress(f"prepare: page cache {experiment.page_cache}")
    paths = place.local_files(train_dir)
    if paths is not None:
        bundle.add_bytes(json.dumps(page_cache.prepared(experiment.page_cache, paths)).encode(), files.PAGE_CACHE)
    elif experiment.page_cache == "warm":
        try:
            for name in place.storage.sizes(train_dir):
                for _ in place.storage.stream(f"{train_dir}/{name}", page_cache.READ_BYTES, names.DATA_SET):
                    pass
        except failures() as error:
            raise ClusterError(f"HDFS did not give {train_dir}: {words(error)}", "--set page_cache=as-is") from error


def _interrupted(bundle: Bundle, run_record: RunInProgress) -> None:
    """Ctrl-C may come at any point: the record says at which."""
    if run_record.run.status != "interrupted":  # it was complete
        reason = f"interrupted after the job had ended: it was {run_record.run.status}"
        run_record.note(status="interrupted", reason=reason)
    _store(bundle, run_record)


def _broken_off(bundle: Bundle, run_record: RunInProgress, error: Exception) -> None:
    """A job was submitted, and then a step of dlobd failed: what exists of the run is kept."""
    if run_record.run.status == "interrupted":  # it was not complete
        what = error.what if isinstance(error, DlobdError) else f"{type(error).__name__}: {error}"
        run_record.note(status="failed", reason=reasons.one_line(f"the run could not be completed: {what}"))
    _store(bundle, run_record)


def _store(bundle: Bundle, run_record: RunInProgress) -> None:
    run_record.write(bundle)
    bundle.seal()


def discard(bundle: Bundle, made: Sequence[Path]) -> None:
    """Removes a bundle that holds nothing, and of the directories around it those that were made for it."""
    shutil.rmtree(bundle.path, ignore_errors=True)
    for path in made:
        try:
            path.rmdir()
        except OSError:
            break  # other runs are in it
