"""Computes the members of run.json that follow from a bundle's evidence. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dlobd import spans as kinds
from dlobd.attribution import core_waits, environment_cache, recording_cost, statistics
from dlobd.attribution.attribute import attribute
from dlobd.attribution.epochs import epochs, first_touch, time_to_accuracy
from dlobd.attribution.exchange_use import exchange_use
from dlobd.attribution.findings.base import Context
from dlobd.attribution.findings.find import findings
from dlobd.attribution.importers.evidence import Evidence
from dlobd.attribution.importers.recorder import RecordedProcess, RecordedSpan, trainers
from dlobd.attribution.imports import imports
from dlobd.attribution.lanes import hdfs_use
from dlobd.attribution.lanes.assemble import assemble
from dlobd.attribution.lanes.ranks import TRAINING, Rank
from dlobd.attribution.lanes.ranks import ranks as ranks_of
from dlobd.attribution.resource_use import resource_use
from dlobd.attribution.sources.missing import missing
from dlobd.attribution.spark_metrics import spark_metrics
from dlobd.attribution.throughput import throughput
from dlobd.attribution.transport import planes
from dlobd.attribution.trust import reasons
from dlobd.attribution.trust.base import Facts
from dlobd.attribution.trust.checks import checks
from dlobd.attribution.trust.warnings import warnings
from dlobd.bundle import files
from dlobd.bundle.run import Check
from dlobd.bundle.store import Bundle
from dlobd.errors import BundleError
from dlobd.schema import OwnJob, Runnable, Status

INTERRUPTED = "interrupted by the user or the system while the job was running"
INTERRUPTED_LATE = "interrupted by the user or the system after the job had ended, before its evidence was complete"


def computed(bundle: Bundle, experiment: Runnable) -> dict[str, Any]:
    """The members of run.json that follow from a bundle's evidence; the same bundle always gives the same.

    Raises:
        BundleError: nothing was submitted, so that there is no window; or what was to be run is not there.
    """
    evidence = Evidence(bundle.path)
    if not evidence.on_file(files.JOB):
        raise BundleError(
            f"{bundle.path} has no {files.JOB}: in which way the job ran is unknown.", "look at its run.json"
        )
    trace = assemble(evidence)
    attribution = attribute(trace)
    cost = recording_cost.overhead(evidence, trace.spans, attribution.segments, attribution.wall_ns)
    window = (trace.start_ns, trace.end_ns)
    environment = environment_cache.environment_cache(evidence.environment_cache)
    waits = core_waits.core_waits(evidence, attribution.segments, window)
    context = Context(evidence, experiment, trace, attribution, waits, environment)
    transport, absences = planes(experiment, evidence), missing(evidence)
    found = checks(Facts(evidence, experiment, attribution.clips, attribution.wall_ns, transport, absences))
    status, reason = _status(experiment, evidence, found)
    uncollected, metrics = evidence.collected["missing"], evidence.collected["metrics"]
    return {
        "status": status,
        "reason": reason,
        "window": {
            "name": evidence.topology.window_name,
            "start_ns": trace.start_ns,
            "end_ns": trace.end_ns,
            "clock": evidence.domain,
        },
        "wall_ns": attribution.wall_ns,
        "layers": _dicts(attribution.layers),
        "unattributed_ns": attribution.unattributed_ns,
        "not_measured": _dicts(attribution.not_measured),
        "intervals": _dicts(attribution.intervals),
        "clips": _dicts(attribution.clips),
        "startup": _dicts(trace.startup),
        "teardown": _dicts(trace.teardown),
        "hdfs": hdfs_use.summary(evidence, trace.spans, trace.intervals),
        "ranks": _ranks(evidence),
        "metrics": metrics | _metrics(evidence),
        **_training_times(experiment, evidence, trace.start_ns),
        "overhead": cost,
        "resources": resource_use(evidence, attribution.segments, window),
        "core_waits": waits,
        "imports": imports(evidence),
        "findings": _dicts(findings(context)),
        "spark_metrics": _spark_metrics(evidence),
        "transport": None if transport is None else _dicts(transport),
        "exchange": _dicts(exchange_use(evidence)),
        "checks": _dicts(found),
        "noise": evidence.noise,
        "page_cache": evidence.page_cache,
        "environment_cache": environment,
        "warnings": [
            *uncollected,
            *warnings(evidence, absences, trace),
            *recording_cost.warnings(cost),
            *core_waits.warnings(waits, attribution.wall_ns),
            *environment_cache.warnings(environment),
        ],
    }


def _dicts(items: Iterable[Any]) -> list[dict[str, Any]]:
    return [asdict(item) for item in items]


def _status(experiment: Runnable, evidence: Evidence, found: Sequence[Check]) -> tuple[Status, str | None]:
    """The status of a run, and the reason if it is not ok."""
    if evidence.window["ended_by"] == "interrupt":
        return "interrupted", INTERRUPTED
    if reason := reasons.ended_badly(evidence, experiment):
        diverged = not evidence.window["ended_by"] and reasons.diverged(evidence)
        return "invalid" if diverged else "failed", reason
    failed = next((check for check in found if check.verdict == "fail"), None)
    return ("invalid", reasons.one_line(failed.message)) if failed else ("ok", None)


def _spark_metrics(evidence: Evidence) -> dict[str, Any] | None:
    try:
        return spark_metrics(evidence.tasks, evidence.stage_calls)
    except (KeyError, TypeError):
        return None  # an event log of an unknown form; the checks that need it are unknown


def _training_times(experiment: Runnable, evidence: Evidence, start_ns: int) -> dict[str, Any]:
    speed, passes, touched = throughput(evidence), epochs(evidence), first_touch(evidence)
    target = 0.0 if isinstance(experiment, OwnJob) else experiment.target_accuracy
    reached = time_to_accuracy(target, passes, start_ns, touched, evidence.chief is not None)
    return {
        "throughput": asdict(speed) if speed else None,
        "epochs": _dicts(passes),
        "first_touch": asdict(touched) if touched else None,
        "time_to_accuracy": asdict(reached) if reached else None,
    }


def _ranks(evidence: Evidence) -> list[dict[str, Any]]:
    if evidence.topology.user_script:
        own = [rank for rank in ranks_of(evidence) if rank.role in TRAINING]
        return [_own_rank(rank) for rank in sorted(own, key=lambda r: (r.role, r.index, r.start_ns))]
    machines = {
        (result.get("role"), result.get("index")): result.get("machine", {}) for result in evidence.results.values()
    }
    training = sorted(trainers(evidence.processes), key=lambda p: (p.process.role, p.process.index))
    return [_rank(p, machines.get((p.process.role, p.process.index), {})) for p in training]


def _rank(process: RecordedProcess, machine: Mapping[str, Any]) -> dict[str, Any]:
    taken = process.steps()
    first = [span for span in taken if span.call == 0]
    steps = [span.end_ns - span.start_ns for span in taken if span.call and not span.truncated]
    ordered = sorted(steps)
    return {
        "role": process.process.role,
        "index": process.process.index,
        "steps": len(steps) + len(first),
        "first_step_ns": first[0].end_ns - first[0].start_ns if first else None,
        "step_p50_ns": statistics.element(ordered, 0.5),
        "step_p99_ns": statistics.quantile(ordered, 0.99),
        "step_max_ns": ordered[-1] if ordered else None,
        "feed_wait_ns": sum(span.end_ns - span.start_ns for span in _feed_waits(process)),
        **_machine(machine),
    }


def _feed_waits(process: RecordedProcess) -> list[RecordedSpan]:
    """Those of the step loop: a thread that takes blocks ahead of it holds nobody up."""
    return [span for name in (kinds.GET, kinds.AWAIT_BLOCK) for span in process.named(name) if not span.thread]


def _machine(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a rank used, if its done-marker says it."""
    return {name: found[name] for name in ("device", "cores", "intra_op_threads", "inter_op_threads") if name in found}


def _own_rank(rank: Rank) -> dict[str, Any]:
    """Only the length of the user's own main function is known, not where its steps are."""
    unknown = dict.fromkeys(("steps", "first_step_ns", "step_p50_ns", "step_p99_ns", "step_max_ns"))
    main_ns = rank.main.end_ns - rank.main.start_ns if rank.main and not rank.main.truncated else None
    wait_ns = sum(span.end_ns - span.start_ns for span in rank.named(kinds.GET))
    return {"role": rank.role, "index": rank.index, **unknown, "main_ns": main_ns, "feed_wait_ns": wait_ns}


def _metrics(evidence: Evidence) -> dict[str, Any]:
    ranks = trainers(evidence.processes)
    results = evidence.results
    samples = sum(result["samples"] for result in results.values()) if results else None
    steps = min((result["steps"] for result in results.values()), default=None)
    begun = [i.at_ns for p in ranks if (i := p.instant(kinds.FIRST_BATCH))]
    ended = [i.at_ns for p in ranks if (i := p.instant(kinds.LAST_STEP_DONE))]
    rate = samples / (max(ended) - min(begun)) * 1e9 if samples and begun and ended else None
    chief = results.get(0)
    losses: Sequence[float | None] = (chief["losses"] if chief else []) or [None]
    test = chief.get("test") if chief else None
    return {
        "test_accuracy": test["accuracy"] if test else None,
        "test_samples": test["samples"] if test else None,
        "train_samples": samples,
        "steps": steps,
        "samples_per_second": rate,
        "first_loss": _finite(losses[0]),
        "last_loss": _finite(losses[-1]),
        "training_ns": max(ended) - min(begun) if begun and ended else None,
        "loop_ns": max((ns for result in results.values() if (ns := result.get("loop_ns")) is not None), default=None),
        "driver_gc_ns": evidence.driver.life.gc_pause_ns if evidence.driver.life else None,
        "spans": sum(len(process.spans) for process in evidence.processes),
    }


def _finite(loss: float | None) -> float | None:
    """JSON has no word for a loss that is not a number; the checks have said so."""
    return loss if loss is not None and math.isfinite(loss) else None


def summary_line(record: Mapping[str, Any]) -> str:
    """One line for progress: status and the largest layers."""
    layers = sorted(record["layers"], key=lambda layer: -layer["ns"])[:3]
    parts = ", ".join(f"{layer['layer']} {layer['ns'] / 1e9:.1f} s" for layer in layers)
    return f"{record['status']}: {parts}" if parts else record["status"]
