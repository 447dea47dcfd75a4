"""Measures the recording overhead: real runs with the recorder on and off, interleaved on one cluster, and one loop.

Each repeat runs both, in an order drawn from the seed, so that what drifts drifts for both alike. What a run without a
recorder still tells is used of either: the wall is the client's window, the training loop is what the ranks report.
Runs differ from each other by more than recording costs, so a step's own cost is measured beside them, in `step_loop`.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlobd import tracing
from dlobd.attribution.recording_cost import BUDGET
from dlobd.attribution.statistics import Median, Ratio, Spread, ratio, spread
from dlobd.bundle.store import Bundle
from dlobd.experiment.files import steps
from dlobd.hadoop.embedded.configuration import default_settings
from dlobd.run import runner
from dlobd.run.deploy import choice, embedded
from dlobd.run.series import settled_busy_percent
from dlobd.schema import Experiment
from dlobd.selftest.step_loop import BLOCK_STEPS, Loop

WAYS = ("off", "on")
FIGURES = {"wall": "wall_ns", "training loop": "loop_ns"}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run. Times in nanoseconds, None if it did not end ok; `loop_ns` is that of its slowest rank.

    `estimate_ns` is what run.json's `overhead` says of that loop; it has `steps` steps, the first one not counted."""

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
    """On against off, of one figure. `pairs` are the differences within a repeat, in nanoseconds."""

    on: Spread
    off: Spread
    pairs: tuple[float, ...]
    ratio: Ratio


def order(repeats: int, seed: int) -> list[tuple[int, str]]:
    """(repeat, way) of every run, in the order in which they are made."""
    found = []
    for repeat in range(1, repeats + 1):
        ways = list(WAYS)
        random.Random(f"{seed} {repeat}").shuffle(ways)
        found += [(repeat, way) for way in ways]
    return found


def measure(
    experiment: Experiment, repeats: int, seed: int, out: Path, progress: Progress, told: Progress
) -> list[Measurement]:
    """Makes all runs; one that fails ends nothing and counts as not measured.

    Args:
        out: directory of the bundles.
        progress: gets the steps of each run.
        told: gets one line per run that has ended.

    Raises:
        SetupError, ClusterError, Busy: a run could not be submitted.
        Interrupted: by Ctrl-C or SIGTERM.
    """
    found: list[Measurement] = []
    with ExitStack() as stack:
        cluster = None
        if choice.needs_cluster(experiment):
            cluster = stack.enter_context(embedded.cluster(default_settings(), {}, progress))
        for repeat, way in order(repeats, seed):
            busy = settled_busy_percent()
            with _switched(way):
                bundle = Bundle(runner.run(experiment, out, progress, cluster))
            found.append(_measurement(repeat, way, bundle, steps(experiment) - 1, busy))
            wall_ns = found[-1].wall_ns
            length = f"{wall_ns / 1e9:.1f} s" if wall_ns is not None else found[-1].status
            told(f"run {len(found)} of {2 * repeats}: recording {way}, {length}")
    return found


@contextmanager
def _switched(way: str) -> Iterator[None]:
    """The recorder on or off in every process of a run that is started meanwhile."""
    before = os.environ.pop(tracing.SWITCH, None)
    if way == "off":
        os.environ[tracing.SWITCH] = way
    try:
        yield
    finally:
        os.environ.pop(tracing.SWITCH, None)
        if before is not None:
            os.environ[tracing.SWITCH] = before


def _measurement(repeat: int, way: str, bundle: Bundle, steps: int, busy: float) -> Measurement:
    run = bundle.read()
    ok = run.status == "ok"
    loop = run.overhead.loop if run.overhead else None
    loop_ns = run.metrics.get("loop_ns")
    return Measurement(
        repeat,
        way,
        str(bundle.path),
        run.status,
        run.wall_ns if ok else None,
        loop_ns if ok and isinstance(loop_ns, int) else None,
        loop.ns if ok and loop else None,
        steps,
        busy,
    )


def difference(runs: list[Measurement], figure: str, seed: int) -> Difference:
    """On against off; `figure` is a value of FIGURES."""
    values: dict[str, dict[int, float]] = {way: {} for way in WAYS}
    for run in runs:
        if (value := getattr(run, figure)) is not None:
            values[run.recording][run.repeat] = value
    on, off = values["on"], values["off"]
    pairs = tuple(on[repeat] - off[repeat] for repeat in sorted(on.keys() & off.keys()))
    return Difference(spread(on.values()), spread(off.values()), pairs, ratio(on.values(), off.values(), seed))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a whole, 0.01 for one percent, with its 95 % interval."""

    part: float
    low: float
    high: float


def share(runs: list[Measurement], added: Median) -> Part | None:
    """What recording adds to a step, as a part of a step of these runs' training loops without it."""
    loops = [run.loop_ns / run.steps for run in runs if run.recording == "off" and run.loop_ns and run.steps]
    if not loops or added.median is None or added.low is None or added.high is None:
        return None
    step_ns = statistics.median(loops)
    return Part(added.median / step_ns, added.low / step_ns, added.high / step_ns)


def document(runs: list[Measurement], loop: Loop | None, seed: int) -> dict[str, Any]:
    """Everything, for `--json`."""
    found: Mapping[str, Any] = {name: asdict(difference(runs, figure, seed)) for name, figure in FIGURES.items()}
    step = None
    if loop:
        added = loop.added_ns(seed)
        part = share(runs, added)
        step = {**asdict(loop), "added_ns": asdict(added), "share": asdict(part) if part else None}
    return {"seed": seed, "runs": [asdict(run) for run in runs], "differences": found, "step": step, "budget": BUDGET}


def report(runs: list[Measurement], loop: Loop | None, seed: int) -> list[str]:
    """What was found, in lines: seconds first, then the ratio."""
    lines = []
    for name, figure in FIGURES.items():
        found = difference(runs, figure, seed)
        lines += _lines(name, found)
    estimates = [run.estimate_ns for run in runs if run.estimate_ns is not None]
    if estimates:
        lines.append(
            f"estimated in the training loop: {statistics.median(estimates) / 1e9:.4f} s (spans times their cost)"
        )
    lines += _of_a_step(runs, loop, seed)
    failed = [f"{run.bundle} ({run.status})" for run in runs if run.status != "ok"]
    if failed:
        lines.append(f"not counted: {', '.join(failed)}")
    busy = [run.busy_percent for run in runs]
    if busy:
        lines.append(f"cores busy before a run: median {statistics.median(busy):.0f} %, at most {max(busy):.0f} %")
    return lines


def _of_a_step(runs: list[Measurement], loop: Loop | None, seed: int) -> list[str]:
    added = loop.added_ns(seed) if loop else Median(None, None, None)
    if loop is None or added.median is None or added.low is None or added.high is None:
        return ["a step: unknown, its loop did not end well"]
    around = f"95 % interval {added.low / 1e3:+.1f} to {added.high / 1e3:+.1f} us"
    turns = f"{len(loop.on_ns)} pairs of {BLOCK_STEPS} steps in turn in one process"
    bare = f"a step takes {statistics.median(loop.off_ns) / 1e3:.0f} us there"
    lines = [f"a step: {added.median / 1e3:+.1f} us with recording, {around}, in {turns}; {bare}"]
    if part := share(runs, added):
        around = f"{part.part:.2%} of a step of these runs, 95 % interval {part.low:.2%} to {part.high:.2%}"
        lines.append(f"a step: {around}: {_verdict(part.low, part.high)}")
    return lines


def _verdict(low: float, high: float) -> str:
    """Of an interval of what recording adds, as a part of the whole."""
    if low > BUDGET:
        return f"warning: more than the {BUDGET:.0%} that recording may cost"
    if high <= BUDGET:
        return f"within the {BUDGET:.0%} that recording may cost"
    return f"so few runs, or so noisy ones, cannot tell whether it is within {BUDGET:.0%}"


def _lines(name: str, found: Difference) -> list[str]:
    if not found.pairs or found.on.median is None or found.off.median is None:
        return [f"{name}: unknown, no repeat has both"]
    pairs = sorted(ns / 1e9 for ns in found.pairs)
    middle = statistics.median(pairs)
    seconds = (
        f"{name}: {middle:+.3f} s with recording, {pairs[0]:+.3f} to {pairs[-1]:+.3f} s in {len(pairs)} pairs; "
        f"medians {found.on.median / 1e9:.3f} s on, {found.off.median / 1e9:.3f} s off"
    )
    known = found.ratio
    if known.ratio is None or known.low is None or known.high is None:
        return [seconds, f"{name}: no interval for fewer than 3 repeats"]
    around = f"{known.ratio:.4f} times as long, 95 % interval {known.low:.4f} to {known.high:.4f}"
    return [seconds, f"{name}: {around}: {_verdict(known.low - 1, known.high - 1)}"]
