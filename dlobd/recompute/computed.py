"""Computes the members of run.json that follow from a bundle's evidence, and stores them. Needs no cluster."""

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.attribution.trace import Spans, Trace
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError, SetupError, UsageError
from dlobd.evidence import recorder
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.kinds import MissingEvidence
from dlobd.evidence.expected.search import missing
from dlobd.evidence.recorder import RecordedProcess, trainers
from dlobd.experiment.own_job import from_dict
from dlobd.fields import decoded
from dlobd.findings.base import Context
from dlobd.findings.find import findings
from dlobd.measures import core_waits, environment_cache, own_training, recording_cost, statistics
from dlobd.measures.epochs import applications, epochs, first_touch, phases, time_to_accuracy
from dlobd.measures.resource_use import resource_use
from dlobd.measures.spark_metrics import spark_metrics
from dlobd.measures.throughput import exchange_use, throughput
from dlobd.measures.transport import planes
from dlobd.measures.user_code import imports, lost_work, python_work
from dlobd.recompute.limits import Parts
from dlobd.record.resources import PageCache
from dlobd.record.run import (
    Check,
    Computed,
    Epoch,
    Failure,
    Metrics,
    Noise,
    Omitted,
    RankSteps,
    TimeToAccuracy,
    Window,
)
from dlobd.schema import Clip, Event, OwnJob, Runnable, Status
from dlobd.timeline import hdfs_use
from dlobd.timeline.assemble import assemble
from dlobd.trust import reasons
from dlobd.trust.base import Facts, json_number
from dlobd.trust.checks import checks
from dlobd.trust.warnings import warnings

MOST_CLIPS = 1_000
"""Maximum number of corrections of a kind that the record lists."""

RECORD_BYTES = 16 << 20
"""Disk for run.json and hashes; a run of 64 executors needs 1 MB."""

INTERRUPTED = "interrupted by the user or the system while the job was running"
INTERRUPTED_LATE = "interrupted by the user or the system after the job had ended, before its evidence was complete"


def computed(bundle: Bundle, experiment: Runnable, forgives: bool = False) -> Computed:
    """Compute the members of run.json from a bundle's evidence; equal bundles give equal results. With `forgives`, a
    part that fails or exceeds its limits is omitted; otherwise its error is raised, such as LimitExceeded. Raises
    BundleError if the run was never submitted or its job description is missing, SetupError if memory does not suffice.
    """
    evidence, parts = Evidence(bundle.path), Parts(forgives, recorder.size_bytes(bundle.spans))
    # without its spans, a run has its wall time only, and no layer has a share of it
    bare = Trace(evidence.window["exec_ns"], evidence.window["exit_ns"], Spans.of(()))
    trace = parts.get("trace", lambda: assemble(evidence), bare)
    attribution = parts.get("attribution", lambda: attribute(trace), attribute(bare))
    window, segments = (trace.start_ns, trace.end_ns), attribution.segments
    cost = parts.get(
        "overhead", lambda: recording_cost.overhead(evidence, trace.spans, segments, attribution.wall_ns), None
    )
    environment = environment_cache.environment_cache(evidence.document(files.ENVIRONMENT_CACHE))
    waits = parts.get("core_waits", lambda: core_waits.core_waits(evidence, segments, window), None)
    context = Context(evidence, experiment, trace, attribution, waits, environment)
    transport = parts.get("transport", lambda: planes(experiment, evidence), None)
    absences: tuple[MissingEvidence, ...] = parts.get("absences", lambda: missing(evidence), ())
    facts = Facts(evidence, experiment, attribution.clips, attribution.wall_ns, transport, absences)
    found: list[Check] = parts.get("checks", lambda: checks(facts), [])
    noise, page_cache = evidence.document(files.NOISE), evidence.document(files.PAGE_CACHE)
    no_epochs: _Epochs = ((), None, None)
    passes, touched, reached = parts.get("epochs", lambda: _epochs(evidence, experiment, trace.start_ns), no_epochs)
    lines: tuple[str, ...] = parts.get("warnings", lambda: tuple(warnings(evidence, absences, trace)), ())
    members = Computed(
        status="invalid",
        reason="",
        window=Window(
            name=evidence.topology.window_name, start_ns=trace.start_ns, end_ns=trace.end_ns, clock=evidence.domain
        ),
        wall_ns=attribution.wall_ns,
        layers=attribution.layers,
        unattributed_ns=attribution.unattributed_ns,
        not_measured=attribution.not_measured,
        intervals=hdfs_use.summed(attribution.intervals),
        clips=_summed(attribution.clips),
        applications=parts.get("applications", lambda: applications(evidence), ()),
        phases=parts.get("phases", lambda: phases(evidence), ()),
        startup=trace.startup,
        teardown=trace.teardown,
        hdfs=parts.get("hdfs", lambda: hdfs_use.summary(evidence, trace.spans, trace.intervals), ()),
        ranks=parts.get("ranks", lambda: _ranks(evidence), ()),
        metrics=parts.get("metrics", lambda: _metrics(evidence), Metrics()),
        throughput=parts.get("throughput", lambda: throughput(evidence), None),
        epochs=passes,
        first_touch=touched,
        time_to_accuracy=reached,
        overhead=cost,
        resources=parts.get("resources", lambda: resource_use(evidence, segments, window), None),
        core_waits=waits,
        imports=parts.get("imports", lambda: imports(evidence), ()),
        findings=parts.get("findings", lambda: tuple(findings(context)), ()),
        spark_metrics=parts.get("spark_metrics", lambda: spark_metrics(evidence.event_log), None),
        python_work=parts.get("python_work", lambda: python_work(evidence), ()),
        transport=None if transport is None else tuple(transport),
        exchange=parts.get("exchange", lambda: exchange_use(evidence), ()),
        lost_work=parts.get("lost_work", lambda: lost_work(evidence), ()),
        checks=tuple(found),
        noise=decoded(Noise, noise) if noise else None,
        page_cache=decoded(PageCache, page_cache) if page_cache else None,
        environment_cache=environment,
        warnings=(
            *evidence.collected["missing"],
            *lines,
            *recording_cost.warnings(cost),
            *core_waits.warnings(waits, attribution.wall_ns),
            *environment_cache.warnings(environment),
        ),
    )
    ended_badly = evidence.window["exit_code"] or evidence.window["ended_by"]
    unknown: tuple[Status, str | None] = (
        "failed" if ended_badly else "invalid",
        "the logs of the job could not be read",
    )
    status, reason = parts.get("status", lambda: _status(experiment, evidence, found, parts.omitted), unknown)
    broken: Failure | None = None
    if status != "ok":
        broken = parts.get(
            "failure",
            lambda: reasons.failure_facts(evidence, experiment, status, reason or "", members.phases, trace.startup),
            None,
        )
    lacking = (f"omitted: {one.part}: {one.reason}" for one in parts.omitted)
    said = (*members.warnings, *lacking)
    return replace(members, status=status, reason=reason, failure=broken, warnings=said, omitted=tuple(parts.omitted))


def check_disk(directory: Path) -> None:
    """Raise SetupError if a directory has no room for a record."""
    if (free := shutil.disk_usage(directory).free) < RECORD_BYTES:
        what = f"The record needs {RECORD_BYTES / 1e6:.0f} MB of disk, and {directory} has {free / 1e6:.1f} MB."
        raise SetupError(what, f"free disk space, or dlobd import {directory} --to DIRECTORY")


def store(bundle: Bundle, to: Path | None = None) -> Bundle:
    """Compute the record of a run from its evidence; write and seal it, or only write run.json into another directory.
    Raises UsageError if the run is still running or waits for its collection, BundleError if the evidence was changed
    after the run or is unreadable, SetupError if memory or disk do not suffice."""
    run, target = bundle.read(), Bundle(to) if to else bundle
    if run.status == "running":
        raise UsageError(f"Run {run.run_id} is running, or waits for its collection.", "wait, or dlobd collect")
    changed = [line for line in bundle.verify() if not line.startswith("run.json:")] if bundle.digest else []
    if changed:
        raise BundleError(f"{bundle.path} differs from its hashes: {changed[0]}.", f"dlobd verify {bundle.path}")
    target.path.mkdir(parents=True, exist_ok=True)
    check_disk(target.path)
    experiment = from_dict(asdict(run.configuration), "configuration of run.json")
    target.write(replace(run.with_computed(computed(bundle, experiment, forgives=True)), process=None))
    if to is None:
        bundle.seal()
    return target


def _summed(clips: Sequence[Clip]) -> tuple[Clip, ...]:
    """Return the corrections for the record. Of more than `MOST_CLIPS` of a kind, the smallest are summed."""
    alike: dict[str, list[Clip]] = defaultdict(list)
    for clip in clips:
        alike[clip.kind].append(clip)
    small = {kind: sorted(some, key=lambda clip: -clip.ns)[MOST_CLIPS:] for kind, some in alike.items()}
    sums = (Clip(kind, "", sum(clip.ns for clip in some), len(some)) for kind, some in small.items() if some)
    omitted = {id(clip) for some in small.values() for clip in some}
    return (*(clip for clip in clips if id(clip) not in omitted), *sums)


NEEDED = ("trace", "attribution", "absences", "checks")
"""Parts without which no figure of a run can be trusted."""


def _status(
    experiment: Runnable, evidence: Evidence, found: Sequence[Check], omitted: Sequence[Omitted]
) -> tuple[Status, str | None]:
    """Return the status of a run, and the reason if it is not ok."""
    if evidence.window["ended_by"] == "interrupt":
        return "interrupted", INTERRUPTED
    if reason := reasons.ended_badly(evidence, experiment):
        diverged = not evidence.window["ended_by"] and reasons.diverged(evidence)
        return "invalid" if diverged else "failed", reason
    if (reason := reasons.without_spark(evidence)) is not None:
        return "invalid", reason
    if lacking := next((one for one in omitted if one.part in NEEDED), None):
        return "invalid", reasons.one_line(f"the {lacking.part} of the job could not be computed: {lacking.reason}")
    failed = next((check for check in found if check.verdict == "fail"), None)
    return ("invalid", reasons.one_line(failed.message)) if failed else ("ok", None)


_Epochs = tuple[tuple[Epoch, ...], Event | None, TimeToAccuracy | None]


def _epochs(evidence: Evidence, experiment: Runnable, start_ns: int) -> _Epochs:
    own = evidence.topology.user_script
    passes, touched = own_training.epochs(evidence) if own else epochs(evidence), first_touch(evidence)
    target = 0.0 if isinstance(experiment, OwnJob) else experiment.target_accuracy
    return passes, touched, time_to_accuracy(target, passes, start_ns, touched, evidence.chief is not None)


def _ranks(evidence: Evidence) -> tuple[RankSteps, ...]:
    if evidence.topology.user_script:
        return own_training.rank_steps(evidence)
    machines = {
        (result.get("role"), result.get("index")): result.get("machine", {}) for result in evidence.results.values()
    }
    training = sorted(trainers(evidence.processes), key=lambda p: (p.process.role, p.process.index))
    return tuple(_rank(p, machines.get((p.process.role, p.process.index), {})) for p in training)


def _rank(process: RecordedProcess, machine: Mapping[str, Any]) -> RankSteps:
    taken = process.steps()
    first_ns = taken.ns[taken.call == 0].tolist()
    ordered = np.sort(taken.ns[(taken.call > 0) & ~taken.truncated]).tolist()
    # only waits of the step loop: the prefetching thread's waits delay no step
    waits = process.named(kinds.GET, kinds.AWAIT_BLOCK)
    return RankSteps(
        role=process.process.role,
        index=process.process.index,
        steps=len(ordered) + len(first_ns),
        step_p50_ns=statistics.element(ordered, 0.5),
        step_p99_ns=statistics.quantile(ordered, 0.99),
        step_max_ns=ordered[-1] if ordered else None,
        first_step_ns=first_ns[0] if first_ns else None,
        feed_wait_ns=int(waits.ns[waits.in_main_thread].sum()),
        device=machine.get("device"),
        cores=machine.get("cores"),
        intra_op_threads=machine.get("intra_op_threads"),
        inter_op_threads=machine.get("inter_op_threads"),
    )


def _metrics(evidence: Evidence) -> Metrics:
    ranks = trainers(evidence.processes)
    results = evidence.results
    collected = evidence.collected["metrics"]
    samples = sum(result["samples"] for result in results.values()) if results else None
    first_batches = [i.at_ns for p in ranks if (i := p.instant(kinds.FIRST_BATCH))]
    last_steps = [i.at_ns for p in ranks if (i := p.instant(kinds.LAST_STEP_DONE))]
    training_ns = max(last_steps) - min(first_batches) if first_batches and last_steps else None
    chief = results.get(0)
    losses = chief["losses"] if chief else []
    test = chief.get("test") if chief else None
    return Metrics(
        test_accuracy=test["accuracy"] if test else None,
        train_samples=samples,
        steps=min((result["steps"] for result in results.values()), default=None),
        samples_per_second=samples / training_ns * 1e9 if samples and training_ns is not None else None,
        test_samples=test["samples"] if test else None,
        first_loss=json_number(losses[0]) if losses else None,
        last_loss=json_number(losses[-1]) if losses else None,
        training_ns=training_ns,
        loop_ns=max((ns for result in results.values() if (ns := result.get("loop_ns")) is not None), default=None),
        driver_gc_ns=evidence.driver.life.gc_pause_ns if evidence.driver.life else None,
        spans=sum(len(process.spans) for process in evidence.all_processes),
        staged_bytes=collected.get("staged_bytes"),
        daemons_bytes=collected.get("daemons_bytes"),
        executor_peak_bytes=collected.get("executor_peak_bytes"),
    )


def summary_line(run: Computed) -> str:
    """Return a progress line: the status and the three largest layers."""
    layers = sorted(run.layers, key=lambda layer: -layer.ns)[:3]
    parts = ", ".join(f"{layer.layer} {layer.ns / 1e9:.1f} s" for layer in layers)
    return f"{run.status}: {parts}" if parts else run.status
