"""Export of a run as MLPerf-style log lines, `:::MLLOG {...}`, in the format of the package `mlperf-logging`.

Keys and event types are constants of that package. `run_start` is the first touch of the training data, as in MLPerf;
everything before it is initialisation. The log is not an MLPerf submission, which requires other models and data sets.
MLPerf is a trademark of MLCommons.
"""

import json
from collections.abc import Iterator, Mapping

from dlobd.errors import UsageError
from dlobd.record.run import Run
from dlobd.schema import ClockAnchor, Experiment

START, STOP, POINT = "INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME"

Line = tuple[int, dict[str, object]]
"""Monotonic timestamp of an event of the log, and its members."""


def mlperf_log(run: Run, anchor: ClockAnchor) -> str:
    """Format the log of a run; `anchor` maps the monotonic clock to wall-clock time. Raises UsageError for a run of a
    user's script, without an evaluated epoch, or without a known first touch of the data."""
    chosen = run.configuration
    if not isinstance(chosen, Experiment):
        raise UsageError(f"Run {run.run_id} is of your own script: dlobd does not know its epochs.", "export another")
    if run.window is None or not any(epoch.known_ns is not None for epoch in run.epochs):
        remedy = f"dlobd run {chosen.name} --set evaluate_every_epochs=1"
        raise UsageError(f"Run {run.run_id} has no evaluated epoch: there is no accuracy to log.", remedy)
    if run.first_touch is None:
        raise UsageError(f"Run {run.run_id} has no timestamp of the first touch of its data.", "export another")
    start_ns, touched_ns = run.window.start_ns, run.first_touch.at_ns
    lines = [*_settings(run, chosen, start_ns), *_training(run, chosen, touched_ns)]
    zero_ns = anchor.wall_ns - anchor.monotonic_ns
    events = ({"namespace": "", "time_ms": (zero_ns + at_ns) // 1_000_000, **members} for at_ns, members in lines)
    return "".join(f":::MLLOG {json.dumps(event)}\n" for event in events)


def _line(
    at_ns: int, event_type: str, key: str, value: object = None, metadata: Mapping[str, object] | None = None
) -> Line:
    return at_ns, {"event_type": event_type, "key": key, "value": value, "metadata": metadata or {}}


def _settings(run: Run, chosen: Experiment, at_ns: int) -> Iterator[Line]:
    """Build events with settings and machine at the start of initialisation."""
    system, architecture, cores = (run.platform.get(name) for name in ("system", "architecture", "cores"))
    values = {
        "cache_clear": chosen.page_cache == "cold",
        "submission_benchmark": chosen.name,
        "submission_org": "none: not submitted",
        "submission_division": "open",
        "submission_status": "research",
        "submission_platform": f"{system} {architecture}, {cores} cores",
        "seed": chosen.seed,
        "global_batch_size": chosen.workers * chosen.batch_size,
        "train_samples": chosen.train_samples,
        "eval_samples": chosen.test_samples,
        "opt_name": chosen.optimiser,
        "opt_base_learning_rate": chosen.learning_rate,
        "opt_momentum": chosen.momentum,
        "opt_weight_decay": chosen.weight_decay,
        "opt_learning_rate_decay_schedule": chosen.schedule,
        "opt_learning_rate_warmup_epochs": chosen.warmup_epochs,
    }
    yield _line(at_ns, START, "init_start", metadata={"run_id": run.run_id, "experiment_key": run.experiment_key})
    for key, value in values.items():
        yield _line(at_ns, POINT, key, value)


def _training(run: Run, chosen: Experiment, touched_ns: int) -> Iterator[Line]:
    yield _line(touched_ns, STOP, "init_stop")
    yield _line(touched_ns, START, "run_start")
    last = run.time_to_accuracy.epoch if run.time_to_accuracy else None
    logged = [epoch for epoch in run.epochs if last is None or epoch.epoch <= last]
    for epoch in logged:
        number = {"epoch_num": epoch.epoch}
        yield _line(epoch.end_ns - epoch.ns, START, "epoch_start", metadata=number)
        yield _line(epoch.end_ns, STOP, "epoch_stop", metadata=number)
        if epoch.known_ns is not None:
            yield _line(epoch.end_ns, START, "eval_start", metadata=number)
            yield _line(epoch.known_ns, POINT, "eval_accuracy", epoch.test_accuracy, number)
            yield _line(epoch.known_ns, STOP, "eval_stop", metadata=number)
    reached = last is not None if chosen.target_accuracy else run.status == "ok"
    outcome: dict[str, object] = {"status": "success" if reached else "aborted"}
    if chosen.target_accuracy:
        outcome["target_accuracy"] = chosen.target_accuracy
    yield _line(logged[-1].known_ns or logged[-1].end_ns, STOP, "run_stop", metadata=outcome)
