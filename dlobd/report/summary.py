"""Figures of a run for all reports, computed once. Times are in nanoseconds, shares are fractions of 1."""

from dataclasses import asdict, dataclass

from dlobd.axes import DATASETS
from dlobd.experiment.training import batches
from dlobd.layers import UNATTRIBUTED, title
from dlobd.measures.statistics import fewest
from dlobd.record.run import Check, RankSteps, Run
from dlobd.report import text
from dlobd.schema import Experiment, LayerTime

UNEXPLAINED_LIMIT = 0.05
"""Unexplained fraction of the wall time above which the report warns."""

SAMPLES_FOR_P99 = fewest(0.99)
"""Fewest samples whose maximum bounds the 99th percentile from above with 95 % confidence."""


@dataclass(frozen=True, slots=True)
class Part:
    """A layer's part of the wall time, or the unattributed time. `share` is the fraction of the wall time.

    measured_ns, between_marks_ns, named_wait_ns, unexplained_ns: split by quality of evidence; their sum is `ns`.
    below_resolution: the part is shorter than the uncertainty of its boundaries; only `hi_ns` is meaningful.
    """

    layer: str
    title: str
    ns: int
    share: float
    lo_ns: int
    hi_ns: int
    unexplained_ns: int
    below_resolution: bool = False
    measured_ns: int = 0
    between_marks_ns: int = 0
    named_wait_ns: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of one run. Without a window, `parts` is empty and `wall_ns` is None.

    parts: layers in the order of reports, without unattributed time.
    seen_ns: explained time of all layers: measured, between marks, and in named waits.
    unknown_ns: unexplained time, inside and outside of layers.
    missing_ns: wall time - sum of its parts; 0 unless the record is damaged.
    failed: checks that failed.
    undecided: checks with verdict unknown.
    not_sound: warnings that reports print before any number.
    """

    wall_ns: int | None
    window: str
    parts: tuple[Part, ...]
    unattributed: Part | None
    seen_ns: tuple[int, int, int]
    unknown_ns: int
    missing_ns: int
    failed: tuple[Check, ...]
    undecided: tuple[Check, ...]
    not_sound: tuple[str, ...]

    @property
    def by_size(self) -> list[Part]:
        """All parts with time, and the unattributed time, the longest first."""
        every = (*self.parts, *((self.unattributed,) if self.unattributed else ()))
        return sorted((part for part in every if part.hi_ns), key=lambda part: -part.ns)

    def share(self, ns: int) -> float:
        """Divide a duration by the wall time; return 0 without a window."""
        return ns / self.wall_ns if self.wall_ns else 0.0


def summary(run: Run) -> Summary:
    """Compute the figures of a run."""
    wall_ns = run.wall_ns
    hidden_in = {name for interval in run.intervals for name in (interval.layer, interval.inside)}
    rest_ns = run.unattributed_ns or 0
    missing_ns = 0 if wall_ns is None else wall_ns - rest_ns - sum(layer.ns for layer in run.layers)
    return Summary(
        wall_ns=wall_ns,
        window=run.window.name if run.window else "window unknown",
        parts=tuple(_part(run, layer, layer.layer in hidden_in) for layer in run.layers),
        unattributed=Part(UNATTRIBUTED, UNATTRIBUTED, rest_ns, rest_ns / (wall_ns or 1), rest_ns, rest_ns, rest_ns)
        if wall_ns is not None
        else None,
        seen_ns=(
            sum(row.measured_ns for row in run.layers),
            sum(row.between_marks_ns for row in run.layers),
            sum(row.named_wait_ns for row in run.layers),
        ),
        unknown_ns=run.unexplained_ns,
        missing_ns=missing_ns,
        failed=tuple(check for check in run.checks if check.verdict == "fail"),
        undecided=tuple(check for check in run.checks if check.verdict == "unknown"),
        not_sound=_not_sound(run, missing_ns),
    )


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


def _part(run: Run, row: LayerTime, hidden: bool) -> Part:
    small = not hidden and 0 < row.ns < row.hi_ns - row.ns
    times = row.ns, row.ns / run.wall_ns if run.wall_ns else 0.0, row.lo_ns, row.hi_ns, row.unexplained_ns
    return Part(row.layer, title(row.layer), *times, small, row.measured_ns, row.between_marks_ns, row.named_wait_ns)


def _not_sound(run: Run, missing_ns: int) -> tuple[str, ...]:
    found = list(run.warnings)
    inconsistent = sum(clip.count for clip in run.clips if clip.kind == "inconsistent")
    if inconsistent:
        found.append(f"the evidence is inconsistent in {inconsistent} places; see the corrections.")
    if run.wall_ns and run.unexplained_ns > UNEXPLAINED_LIMIT * run.wall_ns:
        found.append(f"more than {text.percentage(UNEXPLAINED_LIMIT)} of the wall time is unexplained.")
    if missing_ns:
        found.append(f"the parts do not sum to the wall time: {missing_ns} ns are missing.")
    return tuple(found)
