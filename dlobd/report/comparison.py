"""Terminal text of a comparison and of the gate: differing environments, then the verdicts of each pair, then settings.

The text fits 80 columns. Seconds come before percent; brackets hold confidence intervals.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from dlobd.compare.comparison import Comparison, Pair
from dlobd.compare.figures import WALL
from dlobd.compare.gate import Gate, Judged
from dlobd.compare.permutation import ALPHA, DRAWN
from dlobd.compare.power import MOST_RUNS, POWER
from dlobd.compare.verdicts import Bounds, Compared
from dlobd.layers import title
from dlobd.report import text
from dlobd.report.repeats import plain_table
from dlobd.schema import DEFAULTS

MACHINE = ("host", "processor", "cores", "distribution", "kernel")
"""Members of `platform` that the terminal shows."""


def show(comparison: Comparison, console: Console) -> None:
    """Print a comparison."""
    for difference in comparison.environment:
        text.line(console, f"DIFFERENT ENVIRONMENTS, {difference.line}", "bold yellow")
    for pair in comparison.pairs:
        _pair(comparison, pair, console)
    if any(map(_has_intervals, comparison.pairs)):
        _explain(comparison, console)
    _settings(comparison, console)


def sentence(name: str, compared: Compared) -> str:
    """Format verdict and difference of a quantity as one line."""
    seconds = f"{_seconds(compared.difference_ns, sign=True)} s {_between(compared.difference, 1e9, 3)}".strip()
    if compared.difference_share is None:
        return f"{name}: {compared.verdict}, {seconds}"
    percent = f"{100 * compared.difference_share:+.1f} % {_between(compared.share, 0.01, 1)}".strip()
    return f"{name}: {compared.verdict}, {seconds}, {percent}"


def counts(pair: Pair) -> str:
    """Format the number of compared runs."""
    baseline, candidate = map(len, pair.runs)
    if pair.paired:
        return f"{baseline} repeats, each with one run of both sides"
    return f"{candidate} {'run' if candidate == 1 else 'runs'} against {baseline}"


def not_compared(pair: Pair) -> str:
    """List the layers that some of the runs did not measure."""
    return f"Not compared, because some runs did not measure it: {', '.join(map(title, pair.unknown))}"


def reasons(gate: Gate) -> list[str]:
    """Return one line per quantity with a regression; without a regression, one line per undecided wall time."""
    return [judged_line(one) + _mostly(one, gate) for one in gate.grown or gate.open_walls]


def judged_line(judged: Judged) -> str:
    """Format the verdict of a quantity, with the candidate's name."""
    return f"{judged.pair.candidate}: {sentence(title(judged.name), judged.compared)}"


def gate_document(gate: Gate) -> dict[str, object]:
    """Convert the gate's outcome to a dict for JSON."""
    return {
        "outcome": gate.outcome,
        "grown": [(one.pair.candidate, one.name) for one in gate.grown],
        "reasons": reasons(gate),
        "open": [judged_line(one) for one in gate.open_layers],
        "runs_needed": gate.runs_needed,
    }


def _mostly(judged: Judged, gate: Gate) -> str:
    """Name the layer with the largest growth if the wall time grew but no layer grew significantly."""
    layers = judged.pair.layers
    if not gate.grown or not layers or any(one.pair is judged.pair and one.name != WALL for one in gate.grown):
        return ""
    largest = max(layers, key=lambda layer: layers[layer].difference_ns)
    return f"; mostly in {title(largest)}, {layers[largest].difference_ns / 1e9:+.3f} s, which is not significant"


def _settings(comparison: Comparison, console: Console) -> None:
    shown = {
        name: value for name, value in comparison.common.items() if name not in DEFAULTS or value != DEFAULTS[name]
    }
    text.heading(console, "What is equal on both sides")
    text.line(console, f"Common settings: {_listed(shown)}")
    machine = {name: comparison.machine[name] for name in MACHINE if comparison.machine.get(name)}
    text.line(console, f"Machine: {_listed(machine)}")
    text.line(console, f"Versions: {_listed({name: value for name, value in comparison.versions.items() if value})}")


def _pair(comparison: Comparison, pair: Pair, console: Console) -> None:
    text.heading(console, f"{pair.candidate} against {pair.baseline}: {counts(pair)}")
    for name, (baseline, candidate) in pair.differing.items():
        text.line(console, f"{name}: {baseline} -> {candidate}")
    for line in pair.left_out:
        text.line(console, f"left out: {line}")
    if not pair.paired:
        text.line(console, "The sides ran in different repeats, so a drift of the machine can hide a difference.")
    text.line(console, sentence(WALL, pair.wall), "bold")
    intervals = _has_intervals(pair)
    more = ("interval", "verdict") if intervals else ("percent",)
    rows = plain_table("seconds", "baseline", "candidate", "difference", *more)
    for name, one in pair.quantities.items():
        seconds = _seconds(one.baseline_ns), _seconds(one.candidate_ns), _seconds(one.difference_ns, sign=True)
        more = (_between(one.difference, 1e9, 3), one.verdict) if intervals else (_percent(one, ""),)
        rows.add_row(title(name), *seconds, *more)
    console.print(rows)
    if intervals:
        _detectable(comparison, pair, console)
    if pair.unknown:
        text.line(console, not_compared(pair))
    if not intervals:
        runs = "repeats" if pair.paired else "runs of each side"
        needed = f"it needs at least {comparison.fewest_wall} {runs} (--repeats)"
        text.line(console, f"Too few runs for a verdict: {needed}.")


def _detectable(comparison: Comparison, pair: Pair, console: Console) -> None:
    rows = plain_table(
        "percent", "difference", "interval", "detects", "seconds", f"runs for {text.percentage(comparison.margin)}"
    )
    for name, one in pair.quantities.items():
        detects = "-" if one.smallest_ns is None else _seconds(one.smallest_ns)
        part = (
            f"{one.smallest_ns / one.baseline_ns * 100:.1f}" if one.smallest_ns is not None and one.baseline_ns else "-"
        )
        rows.add_row(title(name), _percent(one, "-"), _between(one.share, 0.01, 1), part, detects, _needed(one))
    console.print(rows)


def _has_intervals(pair: Pair) -> bool:
    return any(one.difference for one in pair.quantities.values())


def _percent(one: Compared, unknown: str) -> str:
    return unknown if one.difference_share is None else f"{one.difference_share * 100:+.1f}"


def _explain(comparison: Comparison, console: Console) -> None:
    quantities = [one for pair in comparison.pairs for one in pair.quantities.values()]
    runs = "repeats" if all(pair.paired for pair in comparison.pairs) else "runs of each side"
    levels = sorted({one.confidence for one in quantities if one.confidence})
    exact = all(one.exact for one in quantities)
    test = "Exact permutation test" if exact else f"Permutation test ({DRAWN:,} relabellings, drawn; seed 0)"
    confidence = f" ({' or '.join(text.percentage(level, 1) for level in levels)} each)"
    margin = text.percentage(comparison.margin)
    text.heading(console, "How to read it")
    text.line(
        console,
        f"{test} of means. False differences occur in at most {text.percentage(ALPHA)} of comparisons (Holm), for wall "
        f"times and for layers separately. Significance needs at least {comparison.fewest_wall} {runs} for the wall "
        f"time, {comparison.fewest_layers} for layers.",
    )
    text.line(
        console,
        f"Brackets hold confidence intervals{confidence if levels else ': none, too few runs'}. Equivalent: the "
        f"interval lies within {margin} of the baseline, for a layer also within {comparison.least_ns / 1e9:.3f} s. "
        f"Detects: smallest difference that this many runs detect with {text.percentage(POWER)} probability. Runs: "
        f"runs of each side that detect a difference of {margin}.",
    )


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _seconds(ns: float, sign: bool = False) -> str:
    return f"{ns / 1e9:{'+' if sign else ''}.3f}"


def _between(bounds: Bounds | None, unit: float, digits: int) -> str:
    return "" if bounds is None else f"({bounds.low / unit:+.{digits}f} to {bounds.high / unit:+.{digits}f})"


def _needed(one: Compared) -> str:
    if one.verdict != "inconclusive":
        return ""
    return str(one.runs_needed) if one.runs_needed else (f"> {MOST_RUNS}" if one.smallest_ns is not None else "-")
