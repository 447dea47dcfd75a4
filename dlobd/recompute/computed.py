"""Computes the members of run.json that follow from a bundle's evidence. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlobd import spans as kinds
from dlobd.attribution.attribute import attribute
from dlobd.bundle import files
from dlobd.bundle.store import Bundle
from dlobd.evidence.evidence import Evidence
from dlobd.evidence.expected.search import missing
from dlobd.evidence.recorder import RecordedProcess, trainers
from dlobd.fields import decoded
from dlobd.findings.base import Context
from dlobd.findings.find import findings
from dlobd.measures import core_waits, environment_cache, recording_cost, statistics
from dlobd.measures.epochs import epochs, first_touch, time_to_accuracy
from dlobd.measures.exchange_use import exchange_use
from dlobd.measures.imports import imports
from dlobd.measures.resource_use import resource_use
from dlobd.measures.spark_metrics import spark_metrics
from dlobd.measures.throughput import throughput
from dlobd.measures.transport import planes
from dlobd.record.resources import PageCache
from dlobd.record.run import Check, Computed, Metrics, Noise, RankSteps, Window
from dlobd.schema import OwnJob, Runnable, Status
from dlobd.timeline import hdfs_use
from dlobd.timeline.assemble import assemble
from dlobd.timeline.ranks import TRAINING
from dlobd.timeline.ranks import ranks as ranks_of
from dlobd.trust import reasons
from dlobd.trust.base import Facts
from dlobd.trust.checks import checks
from dlobd.trust.warnings import warnings

INTERRUPTED = "interrupted by the user or the system while the job was running"
INTERRUPTED_LATE = "interrupted by the user or the system after the job had ended, before its evidence was complete"


def computed(bundle: Bundle, experiment: Runnable) -> Computed:
    """Compute the members of run.json from a bundle's evidence; equal bundles give equal results. Raises BundleError if
    the run was never submitted, or if its job description is missing."""
    evidence = Evidence(bundle.path)
    trace = assemble(evidence)
    attribution = attribute(trace)
    window = (trace.start_ns, trace.end_ns)
    cost = recording_cost.overhead(evidence, trace.spans, attribution.segments, attribution.wall_ns)
    environment = environment_cache.environment_cache(evidence.document(files.ENVIRONMENT_CACHE))
    waits = core_waits.core_waits(evidence, attribution.segments, window)
    context = Context(evidence, experiment, trace, attribution, waits, environment)
    transport, absences = planes(experiment, evidence), missing(evidence)
    found = checks(Facts(evidence, experiment, attribution.clips, attribution.wall_ns, transport, absences))
    status, reason = _status(experiment, evidence, found)
    noise, page_cache = evidence.document(files.NOISE), evidence.document(files.PAGE_CACHE)
    passes, touched = epochs(evidence), first_touch(evidence)
    target = 0.0 if isinstance(experiment, OwnJob) else experiment.target_accuracy
    return Computed(
        status=status,
        reason=reason,
        window=Window(
            name=evidence.topology.window_name, start_ns=trace.start_ns, end_ns=trace.end_ns, clock=evidence.domain
        ),
        wall_ns=attribution.wall_ns,
        layers=attribution.layers,
        unattributed_ns=attribution.unattributed_ns,
        not_measured=attribution.not_measured,
        intervals=attribution.intervals,
        clips=attribution.clips,
        startup=trace.startup,
        teardown=trace.teardown,
        hdfs=hdfs_use.summary(evidence, trace.spans, trace.intervals),
        ranks=_ranks(evidence),
        metrics=_metrics(evidence),
        throughput=throughput(evidence),
        epochs=passes,
        first_touch=touched,
        time_to_accuracy=time_to_accuracy(target, passes, trace.start_ns, touched, evidence.chief is not None),
        overhead=cost,
        resources=resource_use(evidence, attribution.segments, window),
        core_waits=waits,
        imports=imports(evidence),
        findings=tuple(findings(context)),
        spark_metrics=spark_metrics(evidence.event_log.tasks, evidence.event_log.stage_calls),
        transport=None if transport is None else tuple(transport),
        exchange=exchange_use(evidence),
        checks=tuple(found),
        noise=decoded(Noise, noise) if noise else None,
        page_cache=decoded(PageCache, page_cache) if page_cache else None,
        environment_cache=environment,
        warnings=(
            *evidence.collected["missing"],
            *warnings(evidence, absences, trace),
            *recording_cost.warnings(cost),
            *core_waits.warnings(waits, attribution.wall_ns),
            *environment_cache.warnings(environment),
        ),
    )


def _status(experiment: Runnable, evidence: Evidence, found: Sequence[Check]) -> tuple[Status, str | None]:
    """Return the status of a run, and the reason if it is not ok."""
    if evidence.window["ended_by"] == "interrupt":
        return "interrupted", INTERRUPTED
    if reason := reasons.ended_badly(evidence, experiment):
        diverged = not evidence.window["ended_by"] and reasons.diverged(evidence)
        return "invalid" if diverged else "failed", reason
    failed = next((check for check in found if check.verdict == "fail"), None)
    return ("invalid", reasons.one_line(failed.message)) if failed else ("ok", None)


def _ranks(evidence: Evidence) -> tuple[RankSteps, ...]:
    if evidence.topology.user_script:
        own = [rank for rank in ranks_of(evidence) if rank.role in TRAINING]
        found = []
        for rank in sorted(own, key=lambda r: (r.role, r.index, r.start_ns)):
            main_ns = rank.main.end_ns - rank.main.start_ns if rank.main and not rank.main.truncated else None
            wait_ns = sum(span.end_ns - span.start_ns for span in rank.named(kinds.GET))
            found.append(RankSteps(rank.role, rank.index, None, None, None, None, None, wait_ns, main_ns))
        return tuple(found)
    machines = {
        (result.get("role"), result.get("index")): result.get("machine", {}) for result in evidence.results.values()
    }
    training = sorted(trainers(evidence.processes), key=lambda p: (p.process.role, p.process.index))
    return tuple(_rank(p, machines.get((p.process.role, p.process.index), {})) for p in training)


def _rank(process: RecordedProcess, machine: Mapping[str, Any]) -> RankSteps:
    taken = process.steps()
    first = [span for span in taken if span.call == 0]
    ordered = sorted(span.end_ns - span.start_ns for span in taken if span.call and not span.truncated)
    # only waits of the step loop: the prefetching thread's waits delay no step
    waits = [span for name in (kinds.GET, kinds.AWAIT_BLOCK) for span in process.named(name) if not span.thread]
    return RankSteps(
        role=process.process.role,
        index=process.process.index,
        steps=len(ordered) + len(first),
        step_p50_ns=statistics.element(ordered, 0.5),
        step_p99_ns=statistics.quantile(ordered, 0.99),
        step_max_ns=ordered[-1] if ordered else None,
        first_step_ns=first[0].end_ns - first[0].start_ns if first else None,
        feed_wait_ns=sum(span.end_ns - span.start_ns for span in waits),
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
        first_loss=_finite(losses[0]) if losses else None,
        last_loss=_finite(losses[-1]) if losses else None,
        training_ns=training_ns,
        loop_ns=max((ns for result in results.values() if (ns := result.get("loop_ns")) is not None), default=None),
        driver_gc_ns=evidence.driver.life.gc_pause_ns if evidence.driver.life else None,
        spans=sum(len(process.spans) for process in evidence.processes),
        staged_bytes=collected.get("staged_bytes"),
        daemons_bytes=collected.get("daemons_bytes"),
        executor_peak_bytes=collected.get("executor_peak_bytes"),
    )


def _finite(loss: float | None) -> float | None:
    """Replace a NaN or infinite loss, which JSON lacks, with None; a check reports it."""
    return loss if loss is not None and math.isfinite(loss) else None


def summary_line(run: Computed) -> str:
    """Return a progress line: the status and the three largest layers."""
    layers = sorted(run.layers, key=lambda layer: -layer.ns)[:3]
    parts = ", ".join(f"{layer.layer} {layer.ns / 1e9:.1f} s" for layer in layers)
    return f"{run.status}: {parts}" if parts else run.status
