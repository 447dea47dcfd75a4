"""Figures of a run for all reports, computed once. Times are in nanoseconds, shares are fractions of 1."""

from dataclasses import asdict

from dlobd.axes import DATASETS
from dlobd.experiment.files import batches
from dlobd.layers import UNATTRIBUTED
from dlobd.measures.statistics import fewest
from dlobd.record.run import RankSteps, Run
from dlobd.report import text
from dlobd.schema import Experiment, LayerTime

UNEXPLAINED_LIMIT = 0.05
"""Unexplained fraction of the wall time above which the report warns."""

SAMPLES_FOR_P99 = fewest(0.99)
"""Fewest samples whose maximum bounds the 99th percentile from above with 95 % confidence."""


def parts_of(run: Run) -> list[LayerTime]:
    """Return the layers in the order of reports; with a window, also the unattributed time, as the last part."""
    if run.wall_ns is None:
        return [*run.layers]
    rest_ns = run.unattributed_ns or 0
    return [*run.layers, LayerTime(UNATTRIBUTED, "", rest_ns, rest_ns, rest_ns, rest_ns, 0, 0, 0)]


def by_size(run: Run) -> list[LayerTime]:
    """Return all parts with time, and the unattributed time, the longest first."""
    return sorted((part for part in parts_of(run) if part.hi_ns), key=lambda part: -part.ns)


def share(run: Run, ns: int) -> float:
    """Divide a duration by the wall time; return 0 without a window."""
    return ns / run.wall_ns if run.wall_ns else 0.0


def below_resolution(run: Run, part: LayerTime) -> bool:
    """Return True if a part is shorter than the uncertainty of its boundaries; then only `hi_ns` is meaningful."""
    hidden = any(part.layer in (interval.layer, interval.inside) for interval in run.intervals)
    return not hidden and 0 < part.ns < part.hi_ns - part.ns


def seen_ns(run: Run) -> tuple[int, int, int]:
    """Sum the explained time of all layers: measured, between marks, and in named waits."""
    rows = run.layers
    sums_ns = sum(row.measured_ns for row in rows), sum(row.between_marks_ns for row in rows)
    return *sums_ns, sum(row.named_wait_ns for row in rows)


def missing_ns(run: Run) -> int:
    """Return wall time - sum of its parts; 0 unless the record is damaged."""
    return run.wall_ns - sum(part.ns for part in parts_of(run)) if run.wall_ns is not None else 0


def not_sound(run: Run) -> list[str]:
    """Return the warnings that reports print before any number."""
    found = list(run.warnings)
    inconsistent = sum(clip.count for clip in run.clips if clip.kind == "inconsistent")
    if inconsistent:
        found.append(f"the evidence is inconsistent in {inconsistent} places; see the corrections.")
    if run.wall_ns and run.unexplained_ns > UNEXPLAINED_LIMIT * run.wall_ns:
        found.append(f"more than {text.percentage(UNEXPLAINED_LIMIT)} of the wall time is unexplained.")
    if missing := missing_ns(run):
        found.append(f"the parts do not sum to the wall time: {missing} ns are missing.")
    return found


def facts(run: Run) -> list[tuple[str, str]]:
    """Return the main settings as pairs of label and value."""
    chosen = run.configuration
    place = f"{chosen.scheduler} ({chosen.deploy_mode})"
    launcher = "launcher", f"{chosen.launcher} on {place}"
    if not isinstance(chosen, Experiment):
        # without ranks, the launcher took no part
        return [
            ("script", chosen.script),
            ("executors", str(chosen.workers)),
            launcher if run.ranks else ("scheduler", place),
        ]
    return [("model", f"{chosen.model} on {_dataset(chosen.dataset)}"), ("workers", str(chosen.workers)), launcher]


def settings(run: Run) -> str:
    """Format the main settings as one line."""
    chosen = run.configuration
    main = ", ".join(f"{label} {value}" for label, value in facts(run))
    if not isinstance(chosen, Experiment):
        return main
    return f"{main}, {batches(chosen)}, input {chosen.input}, channel {chosen.channel}, exchange {chosen.exchange}"


def machine_of(rank: RankSteps) -> str:
    """Format a rank's device and threads; "" if unknown."""
    if rank.device is None or rank.cores is None:
        return ""
    own = f"TensorFlow's default for {rank.cores} cores"
    intra, inter = rank.intra_op_threads or own, rank.inter_op_threads or own
    return f"device {rank.device}; threads: intra-op {intra}, inter-op {inter}"


def metrics(run: Run) -> list[tuple[str, float | None]]:
    """Return the known metrics; for dlobd's own training, also unknown main results."""
    always = () if run.own else ("test_accuracy", "train_samples", "steps", "samples_per_second")
    return [(name, value) for name, value in asdict(run.metrics).items() if value is not None or name in always]


def slowest_rank(run: Run) -> str:
    """Format the rank with the slowest median step; "" with fewer than two ranks."""
    medians = {rank.name: rank.step_p50_ns for rank in run.ranks if rank.step_p50_ns}
    if len(medians) < 2:
        return ""
    slow = max(medians, key=medians.__getitem__)
    return f"slowest median: {slow}, {medians[slow] / min(medians.values()):.2f} x the fastest"


def _dataset(name: str) -> str:
    row = next((row for row in DATASETS if row.name == name), None)
    return f"{name} ({row.title})" if row and row.part_of else name
