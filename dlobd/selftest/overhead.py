"""Measures the recording overhead in real runs with the recorder on and off, interleaved on one cluster, and in a loop.

Each repeat has a run with and a run without recording, in random order, so that drift affects both; differences and
ratios are computed within a repeat. The figures do not need the recorder: the client measures the wall time, and the
ranks their loop. Runs vary by more than the cost of recording, so `step_loop` measures the cost of a step.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from dlobd import tracing
from dlobd.bundle.store import Bundle
from dlobd.compare.median import Estimate, Spread, fewest_repeats, ratio, spread
from dlobd.experiment.series import shuffled
from dlobd.measures.recording_cost import BUDGET
from dlobd.report.text import percentage
from dlobd.run import runner
from dlobd.run.place import embedded
from dlobd.run.run_record import SetupTimes
from dlobd.run.series_runner import settled_busy_percent
from dlobd.schema import Experiment
from dlobd.selftest.step_loop import BLOCK_STEPS, Loop, added_ns

WAYS = ("off", "on")
FIGURES = {"wall time": "wall_ns", "training loop": "loop_ns"}


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures of one run; its times are None unless the run is ok. `loop_ns` and `steps` are those of the slowest
    rank's training loop, without the first step, and `estimate_ns` is the estimated cost of recording it."""

    repeat: int
    recording: str
    bundle: str
    status: str
    wall_ns: int | None
    loop_ns: int | None
    estimate_ns: int | None
    steps: int
    busy_percent: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Comparison of recording on with off, for one figure. `pairs`: differences within a repeat, in nanoseconds;
    `ratio`: the median of the ratios within a repeat, None without a complete repeat."""

    on: Spread
    off: Spread
    pairs: tuple[float, ...]
    ratio: Estimate | None


def measure(
    experiment: Experiment,
    repeats: int,
    seed: int,
    out: Path,
    progress: Callable[[str], None],
    report: Callable[[str], None],
) -> list[Measurement]:
    """Execute all runs, with their bundles in `out`; `report` gets one line per run. A failed run has no figures, and
    does not end the measurement. Raises the errors of `dlobd.run.runner.run`."""
    measured: list[Measurement] = []
    with ExitStack() as stack:
        cluster = None
        if experiment.scheduler != "none":
            cluster = stack.enter_context(embedded.cluster(SetupTimes(), progress))
        for cell in shuffled(WAYS, repeats, seed):
            repeat, way = cell.repeat, cell.point
            busy = settled_busy_percent()
            with _switched(way):
                bundle = Bundle(runner.run(experiment, out, progress, cluster))
            run = bundle.read()
            found: tuple[int | None, int | None, int | None] = (None, None, None)
            length: str = run.status
            if run.status == "ok":
                loop = run.overhead.loop if run.overhead else None
                found = (run.wall_ns, run.metrics.loop_ns, loop.ns if loop else None)
                length = f"{(run.wall_ns or 0) / 1e9:.1f} s"
            measured.append(Measurement(repeat, way, str(bundle.path), run.status, *found, experiment.steps - 1, busy))
            report(f"run {len(measured)} of {2 * repeats}: recording {way}, {length}")
    return measured


@contextmanager
def _switched(way: str) -> Iterator[None]:
    """Turn the recorder on or off in every process that starts within the context."""
    before = os.environ.pop(tracing.SWITCH, None)
    if way == "off":
        os.environ[tracing.SWITCH] = way
    try:
        yield
    finally:
        os.environ.pop(tracing.SWITCH, None)
        if before is not None:
            os.environ[tracing.SWITCH] = before


def difference(runs: list[Measurement], figure: str) -> Difference:
    """Compare runs with recording on and off; `figure` is a value of FIGURES."""
    values: dict[str, dict[int, float]] = {way: {} for way in WAYS}
    for run in runs:
        if (value := getattr(run, figure)) is not None:
            values[run.recording][run.repeat] = value
    on, off = values["on"], values["off"]
    common = sorted(on.keys() & off.keys())
    pairs = [(on[repeat], off[repeat]) for repeat in common]
    over = ratio((a for a, _ in pairs), (b for _, b in pairs))
    return Difference(spread(on.values()), spread(off.values()), tuple(a - b for a, b in pairs), over)


def share(runs: list[Measurement], added: Estimate | None) -> Estimate | None:
    """Return the added time of a step, as a fraction of the step time in the runs without recording."""
    loops = [run.loop_ns / run.steps for run in runs if run.recording == "off" and run.loop_ns and run.steps]
    return added.times(1 / statistics.median(loops)) if loops and added else None


def document(runs: list[Measurement], loops: Sequence[Loop], seed: int) -> dict[str, object]:
    """Return all results, for `--json`."""
    added = added_ns(loops)
    part = share(runs, added)
    return {
        "seed": seed,
        "runs": [asdict(run) for run in runs],
        "differences": {name: asdict(difference(runs, figure)) for name, figure in FIGURES.items()},
        "step": {
            "processes": [asdict(loop) for loop in loops],
            "added_ns": asdict(added) if added else None,
            "share": asdict(part) if part else None,
        },
        "budget": BUDGET,
    }


def report(runs: list[Measurement], loops: Sequence[Loop]) -> list[str]:
    """Return the results as lines of text: seconds first, then the ratio."""
    lines = []
    for name, figure in FIGURES.items():
        lines += _figure_lines(name, difference(runs, figure))
    if estimates := [run.estimate_ns for run in runs if run.estimate_ns is not None]:
        estimate_s = statistics.median(estimates) / 1e9
        lines.append(f"estimated in the training loop: {estimate_s:.4f} s (number of spans times the cost of a span)")
    lines += _step_lines(runs, loops)
    if failed := [f"{run.bundle} ({run.status})" for run in runs if run.status != "ok"]:
        lines.append(f"not counted: {', '.join(failed)}")
    if busy := [run.busy_percent for run in runs]:
        lines.append(f"cores busy before a run: median {statistics.median(busy):.0f} %, at most {max(busy):.0f} %")
    return lines


def _step_lines(runs: list[Measurement], loops: Sequence[Loop]) -> list[str]:
    added = added_ns(loops)
    if added is None:
        return ["a step: unknown, because its loop failed"]
    turns = f"{len(loops)} processes of {len(loops[0].on_ns)} pairs of {BLOCK_STEPS}-step blocks"
    bare = f"a step takes {statistics.median(loop.step_ns for loop in loops) / 1e3:.0f} us without recording"
    middle = f"a step: {added.value / 1e3:+.1f} us with recording"
    if added.low is None or added.high is None:
        around = spread(loop.added_ns for loop in loops)
        ends = f"{(around.low or 0) / 1e3:+.1f} to {(around.high or 0) / 1e3:+.1f} us"
        return [f"{middle}, {ends} in {turns}; {bare}", f"a step: {_no_interval('processes')}"]
    ends = f"{added.low / 1e3:+.1f} to {added.high / 1e3:+.1f} us"
    lines = [f"{middle}, {_coverage(added)} interval {ends}, in {turns}; {bare}"]
    part = share(runs, added)
    if part and part.low is not None and part.high is not None:
        around_it = f"{_coverage(part)} interval {percentage(part.low, 2)} to {percentage(part.high, 2)}"
        of_run = f"a step: {percentage(part.value, 2)} of the step time of these runs"
        lines.append(f"{of_run}, {around_it}: {_verdict(part.low, part.high)}")
    return lines


def _coverage(estimate: Estimate) -> str:
    return f"{100 * (estimate.coverage or 0):.1f} %"


def _no_interval(unit: str) -> str:
    return f"no interval for fewer than {fewest_repeats()} {unit}"


def _verdict(low: float, high: float) -> str:
    if low > BUDGET:
        return f"warning: exceeds the budget of {percentage(BUDGET)} for recording"
    if high <= BUDGET:
        return f"within the budget of {percentage(BUDGET)} for recording"
    return f"inconclusive for the budget of {percentage(BUDGET)} for recording: too few or too noisy runs"


def _figure_lines(name: str, figure: Difference) -> list[str]:
    if not figure.pairs or figure.on.median is None or figure.off.median is None:
        return [f"{name}: unknown, because no repeat has both runs"]
    pairs = sorted(ns / 1e9 for ns in figure.pairs)
    middle = statistics.median(pairs)
    seconds = (
        f"{name}: {middle:+.3f} s with recording, {pairs[0]:+.3f} to {pairs[-1]:+.3f} s in {len(pairs)} pairs; "
        f"medians {figure.on.median / 1e9:.3f} s on, {figure.off.median / 1e9:.3f} s off"
    )
    ratio = figure.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return [seconds, f"{name}: {_no_interval('repeats')}"]
    interval = f"{ratio.value:.4f} times as long, {_coverage(ratio)} interval {ratio.low:.4f} to {ratio.high:.4f}"
    return [seconds, f"{name}: {interval}: {_verdict(ratio.low - 1, ratio.high - 1)}"]
